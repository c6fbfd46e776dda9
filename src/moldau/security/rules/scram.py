"""SCRAM (RFC 5802) as Kafka speaks it: credentials, the server's side, the client's side. Rule.

A server never learns the password: it keeps what follows from it by many rounds of hashing, and
each side proves to the other that it knows it. Nonces are handed in. `salt_password` takes
milliseconds on purpose; whoever calls what needs it does so off the event loop.

Kafka's names are taken as they are, without SASLprep. What a client says about channel binding or
another user to act for is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

HASHES: Final[Mapping[str, str]] = MappingProxyType(
    {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
)
"""The hash of each mechanism."""

LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""Kafka's bounds. What a server asks of a client is bounded, too: a false one could ask for days
of work."""
MOST_ITERATIONS_TO_DO: Final = 1_000_000
USUAL_ITERATIONS: Final = 8192
SALT_BYTES: Final = 24
"""Of what `moldau users` makes."""

_GS2_HEADER: Final = "n,,"
_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[^,]+)(?P<more>(?:,.*)?))\Z",
    re.DOTALL,
)
_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[^,]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{0,8})(?:,.*)?\Z",
    re.DOTALL,
)
_CLIENT_FINAL = re.compile(
    r"(?P<unproven>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[^,]+)(?:,[a-z]=[^,]*)*)"
    r",p=(?P<proof>[A-Za-z0-9+/=]+)\Z",
    re.DOTALL,
)


class ScramError(Exception):
    """The other side said something that the exchange does not allow, or failed the proof."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What a server keeps of a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def __str__(self) -> str:
        """As Kafka keeps it in `/config/users`."""
        salt, stored, server = (
            b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Read Kafka's text; ValueError when it is not one."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            return cls(
                salt=b64decode(parts["salt"], validate=True),
                stored_key=b64decode(parts["stored_key"], validate=True),
                server_key=b64decode(parts["server_key"], validate=True),
                iterations=int(parts["iterations"]),
            )
        except KeyError as missing:
            raise ValueError(f"has no {missing.args[0]}") from None


def salt_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Slow: `iterations` rounds of hashing."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def make_credential(
    mechanism: str, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
        iterations=iterations,
    )


def pretend_credential(mechanism: str, secret: bytes, user: str) -> ScramCredential:
    """For a user who does not exist: always the same one, and nobody can prove to be him.

    It looks like one that `moldau users` has made, so that whoever tries names does not learn at
    once which of them exist.
    """
    salt = hmac.digest(secret, user.encode(), HASHES[mechanism])[:SALT_BYTES]
    unknown = hmac.digest(secret, salt, HASHES[mechanism])
    return ScramCredential(
        salt=salt, stored_key=unknown, server_key=unknown, iterations=USUAL_ITERATIONS
    )


class ScramServer:
    """The server's side of one exchange: `read_first`, then `answer_first`, then `finish`."""

    def __init__(self, mechanism: str, nonce: str) -> None:
        self.is_token = False  # the user's name is the id of a delegation token
        self._hash = HASHES[mechanism]
        self._own_nonce = nonce
        self._nonce = ""
        self._client_first_bare = ""
        self._server_first = ""
        self._credential: ScramCredential | None = None

    def read_first(self, message: bytes) -> str:
        """The user whom the client claims to be."""
        match = _CLIENT_FIRST.match(_text(message))
        if match is None:
            raise ScramError("the client's first message is malformed")
        user = _unescape(match["user"])
        if match["authzid"] and _unescape(match["authzid"]) != user:
            raise ScramError("nobody may act for another user")
        self.is_token = "tokenauth=true" in match["more"].split(",")
        self._client_first_bare = match["bare"]
        self._nonce = match["nonce"] + self._own_nonce
        return user

    def answer_first(self, credential: ScramCredential) -> bytes:
        salt = b64encode(credential.salt).decode()
        self._credential = credential
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def finish(self, message: bytes) -> bytes:
        """Check the client's proof, and give the server's; ScramError when it is not right."""
        credential = self._credential
        match = _CLIENT_FINAL.match(_text(message))
        if credential is None or match is None:
            raise ScramError("the client's final message is malformed")
        if match["nonce"] != self._nonce or _bytes(match["binding"])[:1] != b"n":
            raise ScramError("the client's final message is not of this exchange")
        said = f"{self._client_first_bare},{self._server_first},{match['unproven']}".encode()
        signature = hmac.digest(credential.stored_key, said, self._hash)
        proof = _bytes(match["proof"])
        client_key = _xor(signature, proof) if len(proof) == len(signature) else b""
        if not hmac.compare_digest(
            hashlib.new(self._hash, client_key).digest(), credential.stored_key
        ):
            raise ScramError("the proof is wrong")
        own = hmac.digest(credential.server_key, said, self._hash)
        return b"v=" + b64encode(own)


class ScramClient:
    """The client's side: `first`, then `final` (slow), then `check`."""

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        """With `is_token` user and password are the id and the secret of a delegation token."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={_escape(user)},r={nonce}{',tokenauth=true' if is_token else ''}"
        self._expected = b""

    def first(self) -> bytes:
        return (_GS2_HEADER + self._first_bare).encode()

    def final(self, server_first: bytes) -> bytes:
        text = _text(server_first)
        match = _SERVER_FIRST.match(text)
        if match is None or not match["nonce"].startswith(self._nonce):
            raise ScramError("the broker's first message is malformed")
        iterations = int(match["iterations"])
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS_TO_DO:
            raise ScramError(f"the broker asks for {iterations} iterations")
        name = HASHES[self._mechanism]
        salted = salt_password(self._mechanism, self._password, _bytes(match["salt"]), iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        unproven = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={match['nonce']}"
        said = f"{self._first_bare},{text},{unproven}".encode()
        proof = _xor(client_key, hmac.digest(stored_key, said, name))
        self._expected = hmac.digest(hmac.digest(salted, b"Server Key", name), said, name)
        return f"{unproven},p={b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Raise ScramError unless the broker knows the password, too."""
        sign, _, value = _text(server_final).partition("=")
        if sign != "v" or not hmac.compare_digest(_bytes(value), self._expected):
            raise ScramError("the broker does not know the password")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message is not UTF-8") from None


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ScramError("a message is not base64 where it has to be") from None


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    if re.search(r"=(?!2C|3D)", name):
        raise ScramError("the user's name is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
