"""Passwords encrypted with a secret of the broker, in the format of Kafka's PasswordEncoder.

    keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,keyLength:128,
    salt:…,iterations:4096,initializationVector:…,passwordLength:6,encryptedPassword:…

What each text says of itself counts when it is decrypted, so that the settings may change. Needs
`moldau[security]`.
"""

from __future__ import annotations

import binascii
import hashlib
import secrets
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.config.declarations.security import MOST_ITERATIONS
from moldau.errors import MissingExtraError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC
    from cryptography.hazmat.primitives.padding import PKCS7

_CIPHER: Final = "AES/CBC/PKCS5Padding"
_HASHES: Final = {
    "PBKDF2WithHmacSHA512": "sha512",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA1": "sha1",
}
_FIELDS: Final = frozenset(
    {"cipherAlgorithm", "keyLength", "salt", "iterations", "initializationVector",
     "passwordLength", "encryptedPassword"}
)  # fmt: skip
_SALT_BYTES: Final = 256
_BLOCK_BYTES: Final = 16
_KEY_BITS: Final = (128, 192, 256)
_BLOCK_BITS: Final = 8 * _BLOCK_BYTES


class DecodedPassword(NamedTuple):
    """A password out of the store."""

    password: str
    is_by_old_secret: bool

    def __repr__(self) -> str:
        return "DecodedPassword()"


class PasswordEncoder:
    """Both ways take milliseconds, and seconds where the iterations are many: for worker threads.
    Keeps nothing, so any number of them may use it."""

    def __init__(
        self,
        secret: str,
        *,
        old_secret: str | None = None,
        key_factory: str = "PBKDF2WithHmacSHA512",
        key_bits: int = 128,
        iterations: int = 4096,
    ) -> None:
        """Raises MissingExtraError."""
        _make_cipher(bytes(_BLOCK_BYTES), bytes(_BLOCK_BYTES))  # is the package there?
        self._secrets = [secret] if old_secret is None else [secret, old_secret]
        self._key_factory = key_factory
        self._key_bits = key_bits
        self._iterations = iterations

    def __repr__(self) -> str:
        return "PasswordEncoder()"

    def encode(self, password: str) -> str:
        salt, vector = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(_BLOCK_BYTES)
        key = _derive(self._secrets[0], self._key_factory, salt, self._iterations, self._key_bits)
        cipher, padding = _make_cipher(key, vector)
        padder = padding.padder()
        padded = padder.update(password.encode()) + padder.finalize()
        encryptor = cipher.encryptor()
        encrypted = encryptor.update(padded) + encryptor.finalize()
        fields = {
            "keyFactoryAlgorithm": self._key_factory,
            "cipherAlgorithm": _CIPHER,
            "keyLength": str(self._key_bits),
            "salt": b64encode(salt).decode(),
            "iterations": str(self._iterations),
            "initializationVector": b64encode(vector).decode(),
            "passwordLength": str(_java_length(password)),
            "encryptedPassword": b64encode(encrypted).decode(),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> DecodedPassword | None:
        """None for what was encrypted with another secret, or in another way."""
        fields = _split(text)
        for number, secret in enumerate(self._secrets):
            try:
                return DecodedPassword(_decrypt(secret, fields), number > 0)
            except (ValueError, KeyError, binascii.Error):
                continue
        return None


def is_encoded(text: str) -> bool:
    """Whether a text has the format; JAAS texts, PEM and passwords that people choose have not."""
    return _split(text).keys() >= _FIELDS


def _split(text: str) -> dict[str, str]:
    pairs = (field.partition(":") for field in text.split(","))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _decrypt(secret: str, fields: dict[str, str]) -> str:
    if fields["cipherAlgorithm"] != _CIPHER:
        raise ValueError("is encrypted in another way")
    iterations = int(fields["iterations"])
    if not 0 < iterations <= MOST_ITERATIONS:
        raise ValueError("has too many iterations")
    factory = fields.get("keyFactoryAlgorithm", "PBKDF2WithHmacSHA512")
    bits = int(fields["keyLength"])
    if bits not in _KEY_BITS:
        raise ValueError("has a key of another length")
    salt, vector, encrypted = (
        b64decode(fields[name], validate=True)
        for name in ("salt", "initializationVector", "encryptedPassword")
    )
    key = _derive(secret, factory, salt, iterations, bits)
    cipher, padding = _make_cipher(key, vector)
    decryptor = cipher.decryptor()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    remover = padding.unpadder()
    password = (remover.update(padded) + remover.finalize()).decode()
    if _java_length(password) != int(fields["passwordLength"]):
        raise ValueError("has another length")
    return password


def _make_cipher(key: bytes, vector: bytes) -> tuple[Cipher[CBC], PKCS7]:
    """AES in CBC mode, and its padding. Raises MissingExtraError."""
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.padding import PKCS7
    except ImportError:
        raise MissingExtraError(
            "password.encoder.secret encrypts with the package cryptography: "
            "pip install 'moldau[security]'"
        ) from None
    return Cipher(algorithms.AES(key), modes.CBC(vector)), PKCS7(_BLOCK_BITS)


def _derive(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    return hashlib.pbkdf2_hmac(_HASHES[factory], secret.encode(), salt, iterations, bits // 8)


def _java_length(text: str) -> int:
    """Characters beyond the first plane count twice in Java."""
    return len(text.encode("utf-16-le")) // 2
