"""Somebody who issues tokens (JWT) for OAUTHBEARER, and the file with his public keys (JWKS)."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

ISSUER = "https://issuer.example.com"
AUDIENCE = "kafka"
_KEY_ID = "k1"


class TokenIssuer:
    """Signs tokens; brokers with `broker_settings` believe them."""

    def __init__(self, folder: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        numbers = self._key.public_key().public_numbers()
        row = {"kty": "RSA", "kid": _KEY_ID, "use": "sig", "alg": "RS256"}
        row |= {"n": _number(numbers.n), "e": _number(numbers.e)}
        self._keys = folder / "jwks.json"
        self._keys.write_text(json.dumps({"keys": [row]}))

    @property
    def broker_settings(self) -> dict[str, str]:
        """Beside `sasl.enabled.mechanisms`."""
        return {
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{self._keys}",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }

    def claims(self, subject: str) -> dict[str, object]:
        """What a good token says."""
        now = int(time.time())
        return {"sub": subject, "aud": AUDIENCE, "iss": ISSUER, "iat": now, "exp": now + 600}

    def sign(self, claims: Mapping[str, object], key: rsa.RSAPrivateKey | None = None) -> str:
        """With another key it is a forgery."""
        return jwt.encode(dict(claims), key or self._key, "RS256", headers={"kid": _KEY_ID})


def unsigned(claims: Mapping[str, object]) -> str:
    return jwt.encode(dict(claims), "", "none", headers={"kid": _KEY_ID})


def _number(value: int) -> str:
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
