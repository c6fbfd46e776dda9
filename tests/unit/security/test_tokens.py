"""Keys of those who issue tokens: who waits for them, and who does not."""

from __future__ import annotations

import hmac
import json
import threading
import time
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.config.listener_options import ListenerOptions
from moldau.config.option import Layers
from moldau.security.sasl_server import _TokenChecker
from moldau.simulation.manual_clock import ManualClock

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class _Clock(ManualClock):
    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def _options() -> ListenerOptions:
    return ListenerOptions.of_listener(Layers(static={}), "OUTSIDE")


class _Checker(_TokenChecker):
    """Its issuer can be made to wait."""

    reads = 0

    def __init__(self, path: Path, clock: _Clock) -> None:
        super().__init__(path.as_uri(), _options(), clock)
        self.may_read = threading.Event()
        self.reading = threading.Event()
        self.may_read.set()

    def _read(self) -> bytes:
        self.reads += 1
        self.reading.set()
        assert self.may_read.wait(60)
        return super()._read()


def token(key_id: str) -> str:
    now = int(time.time())
    claims = {"sub": "alice", "iat": now, "exp": now + 600}
    return jwt.encode(claims, KEY, algorithm="RS256", headers={"kid": key_id})


@pytest.fixture
def checker(tmp_path: Path) -> _Checker:
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    (tmp_path / "keys").write_text(json.dumps({"keys": [{**public, "kid": "known"}]}))
    return _Checker(tmp_path / "keys", _Clock())


def test_known_keys_do_not_wait_for_an_issuer_that_does_not_answer(checker: _Checker) -> None:
    assert checker.check(token("known")).subject == "alice"
    clock = checker._clock
    assert isinstance(clock, _Clock)
    clock.ahead = 100.0
    checker.may_read.clear()
    checker.reading.clear()
    with ThreadPoolExecutor(1) as pool:
        guessed = pool.submit(checker.check, token("a guess"))
        assert checker.reading.wait(60)
        assert checker.check(token("known")).subject == "alice"
        with pytest.raises(ValueError, match="does not have"):
            checker.check(token("another guess"))
        checker.may_read.set()
        with pytest.raises(ValueError, match="does not have"):
            guessed.result(60)
    assert checker.reads == 2


def test_the_first_logins_wait_for_the_first_keys_together(checker: _Checker) -> None:
    checker.may_read.clear()
    with ThreadPoolExecutor(2) as pool:
        first = [pool.submit(checker.check, token("known")) for _ in range(2)]
        assert checker.reading.wait(60)
        checker.may_read.set()
        assert [one.result(60).subject for one in first] == ["alice", "alice"]
    assert checker.reads == 1


# Forgeries, and what an issuer may publish


def sign(algorithm: str = "RS256", *, key: object = KEY, **header: object) -> str:
    now = int(time.time())
    claims = {"sub": "alice", "iat": now, "exp": now + 600}
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": "known", **header})  # type: ignore[arg-type]


def publish(checker: _Checker, *keys: dict[str, object]) -> None:
    Path(checker._url.removeprefix("file://")).write_text(json.dumps({"keys": keys}))


def public_key(**more: object) -> dict[str, object]:
    return {
        **json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())),
        "kid": "known",
        **more,
    }


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def make_by_hand(header: bytes, claims: bytes, signature: bytes = b"x") -> str:
    return ".".join(base64url(part) for part in (header, claims, signature))


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS512"])
def test_a_key_without_an_algorithm_is_for_all_of_its_type(
    checker: _Checker, algorithm: str
) -> None:
    publish(checker, {name: value for name, value in public_key().items() if name != "alg"})
    assert checker.check(sign(algorithm)).subject == "alice"


def test_a_key_with_an_algorithm_is_for_that_one_alone(checker: _Checker) -> None:
    publish(checker, public_key(alg="RS512"))
    assert checker.check(sign("RS512")).subject == "alice"
    with pytest.raises(ValueError, match="names an algorithm"):
        checker.check(sign("RS256"))


def test_the_public_key_is_no_password(checker: _Checker) -> None:
    """The classic forgery: signed by HMAC with what everybody can read."""
    publish(checker, public_key())
    pem = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header = json.dumps({"alg": "HS256", "kid": "known", "typ": "JWT"}).encode()
    claims = json.dumps({"sub": "admin", "iat": 1, "exp": 9_999_999_999}).encode()
    signed = f"{base64url(header)}.{base64url(claims)}".encode()
    forged = make_by_hand(header, claims, hmac.digest(pem, signed, "sha256"))
    with pytest.raises(ValueError, match="names an algorithm"):
        checker.check(forged)


@pytest.mark.parametrize("algorithm", ["none", "None", "HS512", "", None, 5, ["RS256"], "RS257"])
def test_algorithms_that_prove_nothing_are_refused(checker: _Checker, algorithm: object) -> None:
    header = json.dumps({"alg": algorithm, "kid": "known"}).encode()
    claims = json.dumps({"sub": "admin", "iat": 1, "exp": 9_999_999_999}).encode()
    for signature in (b"", b"x"):
        with pytest.raises(ValueError, match="token"):
            checker.check(make_by_hand(header, claims, signature))


def test_secret_keys_that_an_issuer_publishes_check_nothing(checker: _Checker) -> None:
    secret = b"whoever reads this could sign with it"
    publish(
        checker, {"kty": "oct", "kid": "known", "k": base64url(secret)}, public_key(kid="other")
    )
    for algorithm in ("HS256", "RS256"):
        header = json.dumps({"alg": algorithm, "kid": "known"}).encode()
        claims = json.dumps({"sub": "admin", "iat": 1, "exp": 9_999_999_999}).encode()
        signed = f"{base64url(header)}.{base64url(claims)}".encode()
        forged = make_by_hand(header, claims, hmac.digest(secret, signed, "sha256"))
        with pytest.raises(ValueError, match="key that the issuer does not have"):
            checker.check(forged)


def test_keys_for_encryption_check_nothing(checker: _Checker) -> None:
    publish(checker, public_key(use="enc"), public_key(kid="other"))
    with pytest.raises(ValueError, match="key that the issuer does not have"):
        checker.check(sign())


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 200_000,
        b'{"alg": "RS256", "kid": ' + b"[" * 200_000,
        b'{"alg": "RS256", "kid": {}}',
        b'{"alg": "RS256", "kid": "' + b"k" * 400_000 + b'"}',
        b"\xff\xfe",
        b"null",
        b'"RS256"',
    ],
)
def test_headers_that_strangers_make_up_are_refused(checker: _Checker, header: bytes) -> None:
    with pytest.raises(ValueError, match="token"):
        checker.check(make_by_hand(header, b"{}"))


@given(st.text(alphabet="eyJhbGciOi._-=AZ09", max_size=200) | st.text(max_size=50))
@settings(deadline=None)
def test_any_text_is_refused(text: str) -> None:
    checker = _TokenChecker("file:///nowhere", _options(), _Clock())
    with pytest.raises(ValueError):  # noqa: PT011 whatever is wrong with it
        checker.check(text)


@pytest.mark.parametrize(
    ("claims", "is_good"),
    [
        ({}, True),
        ({"exp": -20}, True),  # within the usual skew of clocks, 30 seconds
        ({"exp": -40}, False),
        ({"iat": 20, "nbf": 20}, True),
        ({"nbf": 50}, False),
        ({"iat": 50}, False),
        ({"exp": None}, False),
        ({"iat": None}, False),
        ({"exp": "Infinity"}, False),
        ({"sub": None}, False),
        ({"sub": ""}, False),
        ({"sub": " "}, False),
        ({"sub": 5}, False),
        ({"sub": ["alice"]}, False),
    ],
)
def test_claims(checker: _Checker, claims: dict[str, object], is_good: bool) -> None:
    now = int(time.time())
    said: dict[str, object] = {"sub": "alice", "iat": now, "exp": now + 600}
    for name, value in claims.items():
        if value is None:
            del said[name]
        elif value == "Infinity":
            said[name] = float("inf")
        else:
            said[name] = now + value if isinstance(value, int) and name != "sub" else value
    header = {"alg": "RS256", "kid": "known"}
    signed = ".".join(base64url(json.dumps(part).encode()) for part in (header, said))
    signature = KEY.sign(signed.encode(), PKCS1v15(), SHA256())
    token = f"{signed}.{base64url(signature)}"
    if is_good:
        assert checker.check(token).subject == "alice"
    else:
        with pytest.raises(ValueError, match="token"):
            checker.check(token)


def test_unknown_keys_ask_the_issuer_every_few_seconds_at_most(checker: _Checker) -> None:
    checker.check(sign())
    assert checker.reads == 1
    for _ in range(50):
        with pytest.raises(ValueError, match="key that the issuer does not have"):
            checker.check(sign(kid="made-up"))
    assert checker.reads == 1
    assert isinstance(checker._clock, _Clock)
    checker._clock.ahead += 6
    publish(checker, public_key(kid="new"), public_key())
    assert checker.check(sign(kid="new")).subject == "alice"
    assert checker.reads == 2


def test_keys_are_asked_for_again_after_a_while_and_kept_when_nobody_answers(
    checker: _Checker,
) -> None:
    checker.check(sign())
    assert isinstance(checker._clock, _Clock)
    checker._clock.ahead += 3_601
    publish(checker, public_key(kid="another"))
    with pytest.raises(ValueError, match="key that the issuer does not have"):
        checker.check(sign())  # it was taken away
    checker._clock.ahead += 3_601
    Path(checker._url.removeprefix("file://")).unlink()
    assert checker.check(sign(kid="another")).subject == "alice"
