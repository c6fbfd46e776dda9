"""TLS contexts of brokers, clients and ZooKeeper, and what reads their files again."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

from moldau.config.declarations.security import TlsOptions
from moldau.errors import ConfigurationError, InvariantViolation, MissingExtraError
from moldau.security.rules.certificates import first_end_ms
from moldau.workers import Workers

# TLS contexts from options: PEM and PKCS#12, files and texts. Blocking; for worker threads.
#
# Python's `ssl` takes keys from files only, so a key that was given as text, or comes out of a
# PKCS#12 file, goes through a file in memory, which nobody else can open.


_PEM_BEGIN: Final = b"-----BEGIN"
_JKS_BEGINS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_VERSIONS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class _Identity(NamedTuple):
    """A chain and its key as PEM."""

    pem: bytes
    password: str | None

    def __repr__(self) -> str:
        return "_Identity()"


def server_context(options: TlsOptions, client_auth: str = "none") -> ssl.SSLContext:
    """For those who listen. Raises ConfigurationError that says what is wrong."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    _limit(context, options)
    identity = _load_identity(options)
    if identity is None:
        raise ConfigurationError(
            "a TLS listener needs a certificate: set ssl.keystore.location to a PEM file with the "
            "certificate chain and its key (`moldau secure init` makes one)"
        )
    _use_identity(context, identity)
    if client_auth != "none":
        if not _use_trust(context, options):
            raise ConfigurationError(
                f"ssl.client.auth={client_auth} needs ssl.truststore.location: the certificates "
                "of those who sign the clients'"
            )
        context.verify_mode = _CLIENT_AUTH[client_auth]
    return context


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """For those who connect. Without a trust store, whom the operating system trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_COMPRESSION
    context.check_hostname = bool(options.ssl_endpoint_identification_algorithm)
    _limit(context, options)
    if not _use_trust(context, options):
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    identity = _load_identity(options)
    if identity is not None:
        _use_identity(context, identity)
    return context


def files_of(options: TlsOptions) -> tuple[Path, ...]:
    """What a context is made of, to be watched."""
    given = (options.ssl_keystore_location, options.ssl_truststore_location)
    return tuple(Path(location) for location in given if location)


def find_chain_end_ms(options: TlsOptions) -> int | None:
    """When the first certificate of the own chain ends, in milliseconds since 1970; None where
    there is none. Raises ConfigurationError."""
    identity = _load_identity(options)
    try:
        return None if identity is None else first_end_ms(identity.pem)
    except ValueError as fault:
        raise ConfigurationError(f"a certificate of the key store {fault}") from None


def _limit(context: ssl.SSLContext, options: TlsOptions) -> None:
    versions = [_VERSIONS[name] for name in options.ssl_enabled_protocols]
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)
    names = [_openssl_name(name) for name in options.ssl_cipher_suites]
    chosen = [name for name in names if not name.startswith("TLS_")]  # those are of TLS 1.3
    if chosen:
        try:
            context.set_ciphers(":".join(chosen))
        except ssl.SSLError:
            raise ConfigurationError(
                f"ssl.cipher.suites={','.join(options.ssl_cipher_suites)} names no cipher that "
                "OpenSSL has"
            ) from None


def _openssl_name(name: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is `ECDHE-RSA-AES128-GCM-SHA256` for OpenSSL."""
    if not name.startswith("TLS_") or "_WITH_" not in name:
        return name
    spelled = name.removeprefix("TLS_").replace("_WITH_", "_").replace("_", "-")
    spelled = spelled.replace("AES-128", "AES128").replace("AES-256", "AES256")
    return spelled.removesuffix("-SHA256") if "CHACHA20" in spelled else spelled


def _load_identity(options: TlsOptions) -> _Identity | None:
    chain, key = options.ssl_keystore_certificate_chain, options.ssl_keystore_key
    if chain and key:
        pem = f"{_with_lines(key)}\n{_with_lines(chain)}\n".encode()
        return _Identity(pem, options.ssl_key_password)
    if not options.ssl_keystore_location:
        return None
    data = _read("ssl.keystore.location", options.ssl_keystore_location)
    if _PEM_BEGIN in data:
        return _Identity(data, options.ssl_key_password or options.ssl_keystore_password)
    password = options.ssl_keystore_password
    return _Identity(_identity_of_pkcs12(data, options.ssl_keystore_location, password), None)


def _use_identity(context: ssl.SSLContext, identity: _Identity) -> None:
    def password() -> str:
        if identity.password is None:
            # Else OpenSSL would ask for it on the terminal.
            raise ConfigurationError("the private key is encrypted: set ssl.key.password")
        return identity.password

    with _private_file(identity.pem) as path:
        try:
            context.load_cert_chain(path, password=password)
        except ssl.SSLError as error:
            reason = error.reason or "it is not PEM"
            raise ConfigurationError(
                f"the key store does not have a certificate and its key, or its password is "
                f"another one ({reason})"
            ) from None


def _use_trust(context: ssl.SSLContext, options: TlsOptions) -> bool:
    if options.ssl_truststore_certificates:
        pem = _with_lines(options.ssl_truststore_certificates)
    elif options.ssl_truststore_location:
        data = _read("ssl.truststore.location", options.ssl_truststore_location)
        if _PEM_BEGIN not in data:
            password = options.ssl_truststore_password
            data = _trust_of_pkcs12(data, options.ssl_truststore_location, password)
        pem = data.decode("ascii", "ignore")  # comments have letters that `ssl` does not take
    else:
        return False
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError):
        raise ConfigurationError("the trust store has no certificates") from None
    return True


def _read(name: str, location: str) -> bytes:
    try:
        data = Path(location).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{name}={location} cannot be read: {error.strerror}") from None
    if data[:4] in _JKS_BEGINS:
        raise ConfigurationError(
            f"{name}={location} is in Java's own format; make PKCS12 of it: keytool "
            f"-importkeystore -srckeystore {shlex.quote(location)} -destkeystore "
            f"{shlex.quote(f'{location}.p12')} -deststoretype PKCS12"
        )
    return data


def _with_lines(pem: str) -> str:
    """PEM on one line, as properties files have it, with its lines again."""
    text = pem.replace("\\n", "\n").strip()
    if "\n" in text:
        return text
    parts = [part for part in text.split("-----") if part.strip()]
    lines = []
    for part in parts:
        if part.startswith(("BEGIN ", "END ")):
            lines.append(f"-----{part}-----")
        else:
            lines.extend(part.split())
    return "\n".join(lines)


def _identity_of_pkcs12(data: bytes, location: str, password: str | None) -> bytes:
    key, certificate, others = _load_pkcs12(data, location, password)
    if not key or not certificate:
        raise ConfigurationError(f"{location} has no private key with its certificate")
    return key + certificate + others


def _trust_of_pkcs12(data: bytes, location: str, password: str | None) -> bytes:
    _, certificate, others = _load_pkcs12(data, location, password)
    return others + certificate


def _load_pkcs12(data: bytes, location: str, password: str | None) -> tuple[bytes, bytes, bytes]:
    """The key, its certificate, and the other certificates, as PEM; empty where there is none."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise MissingExtraError(
            f"{location} is not PEM; to read PKCS#12, pip install 'moldau[security]'"
        ) from None
    pem = serialization.Encoding.PEM
    try:
        loaded = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError:
        raise ConfigurationError(
            f"{location} is neither PEM nor PKCS#12, or its password is another one"
        ) from None
    key = b""
    if loaded.key is not None:
        plain, form = serialization.NoEncryption(), serialization.PrivateFormat.PKCS8
        key = loaded.key.private_bytes(pem, form, plain)
    certificate = b"" if loaded.cert is None else loaded.cert.certificate.public_bytes(pem)
    others = (one.certificate.public_bytes(pem) for one in loaded.additional_certs)
    return key, certificate, b"".join(others)


@contextlib.contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("moldau-key")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="moldau-") as file:  # mode 600
        file.write(data)
        file.flush()
        yield file.name


# A TLS context that is read anew for each connection. A shell, for threads that block.
#
# For connections that are seldom, as those to ZooKeeper: `WatchedContext` is for listeners.


_log = logging.getLogger("moldau.security")


class FreshContext:
    """`load` once; each call reads the files again. Used by one thread at a time."""

    def __init__(
        self, name: str, options: TlsOptions, make: Callable[[TlsOptions], ssl.SSLContext]
    ) -> None:
        self._name = name
        self._options = options
        self._make = make
        self._former: ssl.SSLContext | None = None

    def load(self) -> ssl.SSLContext:
        """Raises ConfigurationError that says what is wrong."""
        self._former = self._make(self._options)
        return self._former

    def __call__(self) -> ssl.SSLContext:
        """Of the files as they are, or as they were when they could be read for the last time."""
        former = self._former
        try:
            return self.load()
        except (ConfigurationError, MissingExtraError) as error:
            if former is None:
                raise
            _log.error(
                "the changed certificates of %s are not used, the former stay in force: %s",
                self._name,
                error,
            )
            return former


# A TLS context that follows its files and options, while connections use it. A shell.
#
# Certificates end, and nobody wants to stop a broker for a new one: a context is made again when a
# file or a setting has changed. One that cannot be made leaves the former in use, and says so once.


O = TypeVar("O", bound=TlsOptions)  # noqa: E741

_State = tuple[object, ...]


class WatchedContext(Generic[O]):
    """`load` once, then `refresh` now and then. Owned by the event loop."""

    def __init__(
        self,
        name: str,
        find_options: Callable[[], O],
        make: Callable[[O], ssl.SSLContext],
        workers: Workers,
    ) -> None:
        self._name = name
        self._find_options = find_options
        self._make = make
        self._workers = workers
        self._context: ssl.SSLContext | None = None
        self._state: _State = ()  # of what the context was made of
        self._failed: _State = ()  # of what none could be made of

    @property
    def context(self) -> ssl.SSLContext:
        if self._context is None:
            raise InvariantViolation(f"the TLS context of {self._name} was never loaded")
        return self._context

    async def load(self) -> None:
        """Raises ConfigurationError that says what is wrong."""
        options = self._find_options()
        self._state, self._context = await self._workers.run(lambda: self._read(options))

    async def refresh(self) -> bool:
        """Whether there is a new context."""
        options = self._find_options()
        state = await self._workers.run(lambda: _state_of(options))
        if state in (self._state, self._failed):
            return False
        try:
            self._state, self._context = await self._workers.run(lambda: self._read(options))
        except (ConfigurationError, MissingExtraError) as error:
            self._failed = state
            _log.error(
                "the changed certificates of %s are not used, the former stay in force: %s",
                self._name,
                error,
            )
            return False
        self._failed = ()
        _log.warning("new connections of %s use changed certificates", self._name)
        return True

    def _read(self, options: O) -> tuple[_State, ssl.SSLContext]:
        # The state first: a file that changes meanwhile is read again at the next look.
        return _state_of(options), self._make(options)


def _state_of(options: TlsOptions) -> _State:
    """What a context depends on."""
    values = tuple(getattr(options, one.attribute) for one in options.declarations().values())
    return (values, *map(_stamp, files_of(options)))


def _stamp(path: Path) -> tuple[int, int, int] | None:

    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
