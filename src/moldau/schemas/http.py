"""Asks a registry over HTTP, and waits no longer than it was told. A shell; standard library alone.

Blocking: called in a thread where waiting holds up nothing. Several addresses of one registry are
asked in turn; what did not reach one (no connection, 5xx) goes to the next, in rounds, until the
time is up; where nobody listens at any of them, that is soon. All that is asked can be asked twice.
Redirections are not followed: they would carry the password elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from moldau.errors import RegistryError, RegistryUnreachableError, UsageError

_log = logging.getLogger("moldau.schemas")

_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_ACCEPT: Final = f"{_CONTENT_TYPE}, application/vnd.schemaregistry+json, application/json"
_MOST_BYTES: Final = 16 << 20
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0
_TIMEOUT_SECONDS: Final = 10.0
_NOBODY_SECONDS: Final = 2.0
"""For a registry that is being started again; where it takes longer, somebody has to look."""

_NOBODY_LISTENS: Final = (ConnectionRefusedError, socket.gaierror)
_TRY_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})


class Answer(NamedTuple):
    """What a registry said; `document` is None where it was no JSON."""

    status: int
    document: object


class _Address(NamedTuple):
    """Where one server of a registry is."""

    is_secure: bool
    host: str
    port: int | None
    path: str

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_secure else 'http'}://{host}{port}{self.path}"


class RegistryHttp:
    """The servers of one registry. Safe for threads: each request has its own connection."""

    def __init__(
        self,
        urls: Sequence[str],
        *,
        headers: Mapping[str, str],
        tls: ssl.SSLContext | None,
        timeout_seconds: float | None,
    ) -> None:
        self._addresses = tuple(_parse(one) for one in urls)
        if not self._addresses:
            raise UsageError("schema.registry.url is empty; it is like http://host:8081")
        self._headers = {"Accept": _ACCEPT, "User-Agent": "moldau", **headers}
        self._tls = tls
        if timeout_seconds is None:
            self._timeout_seconds, self._nobody_seconds = _TIMEOUT_SECONDS, _NOBODY_SECONDS
        else:  # who says how long it may take, means a registry that is still being started, too
            self._timeout_seconds = self._nobody_seconds = timeout_seconds

    def __str__(self) -> str:
        return ", ".join(map(str, self._addresses))

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Answer:
        """Raises RegistryUnreachableError when nobody answers in time."""
        target = path if not query else f"{path}?{urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        begun = time.monotonic()
        deadline = begun + self._timeout_seconds
        pause = _FIRST_PAUSE_SECONDS
        is_told = False
        while True:
            found = self._ask_in_turn(method, target, data, deadline)
            if isinstance(found, Answer):
                return found
            told = "; ".join(f"{where}: {_describe(why)}" for where, why in found.items())
            end = deadline
            if all(isinstance(why, _NOBODY_LISTENS) for why in found.values()):
                end = min(deadline, begun + self._nobody_seconds)
            if time.monotonic() + pause >= end:
                raise RegistryUnreachableError(
                    f"no schema registry answered within {end - begun:g} seconds ({told})"
                )
            if not is_told:
                _log.warning("no schema registry answers (%s); trying again", told)
                is_told = True
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _ask_in_turn(
        self, method: str, target: str, data: bytes | None, deadline: float
    ) -> Answer | dict[str, Exception]:
        """The first answer that counts, or why each of the addresses has none."""
        failures: dict[str, Exception] = {}
        for address in self._addresses:
            left = deadline - time.monotonic()
            if left <= 0:
                failures[str(address)] = HTTPException("was not asked in time")
                continue
            try:
                answer = self._ask(address, method, target, data, left)
            except ssl.SSLCertVerificationError as error:
                raise RegistryUnreachableError(
                    f"the certificate of the schema registry at {address} is not trusted: "
                    f"{error.verify_message}; schema.registry.ssl.truststore.location names "
                    "the authorities that are"
                ) from error
            except (OSError, HTTPException) as error:
                failures[str(address)] = error
                continue
            if answer.status not in _TRY_AGAIN:
                return answer
            said = f"answered {answer.status}{_message_of(answer)}"
            failures[str(address)] = HTTPException(said)
        return failures

    def _ask(
        self, address: _Address, method: str, target: str, data: bytes | None, seconds: float
    ) -> Answer:
        connection = self._connection_to(address, seconds)
        headers = (
            self._headers if data is None else {**self._headers, "Content-Type": _CONTENT_TYPE}
        )
        try:
            connection.connect()
            with _ended_after(connection, seconds):
                connection.request(method, address.path + target, data, dict(headers))
                answer = connection.getresponse()
                content = answer.read(_MOST_BYTES + 1)
                if answer.length and len(content) <= _MOST_BYTES:
                    raise IncompleteRead(content, answer.length)
        finally:
            connection.close()
        if len(content) > _MOST_BYTES:
            raise RegistryError(f"{address} answers with more than {_MOST_BYTES >> 20} MiB")
        return Answer(answer.status, _parse_json(content))

    def _connection_to(self, address: _Address, seconds: float) -> HTTPConnection:
        if not address.is_secure:
            return HTTPConnection(address.host, address.port, timeout=seconds)
        context = self._tls or ssl.create_default_context()
        return HTTPSConnection(address.host, address.port, timeout=seconds, context=context)


@contextlib.contextmanager
def _ended_after(connection: HTTPConnection, seconds: float) -> Iterator[None]:
    """A timeout of a socket counts from byte to byte; this one counts for all of an answer."""
    is_over = threading.Event()
    timer = threading.Timer(seconds, _shut_down, (connection, is_over))
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, HTTPException) as error:
        if is_over.is_set():
            raise TimeoutError from error
        raise
    finally:
        timer.cancel()
    if is_over.is_set():
        raise TimeoutError  # what was read may lack its end


def _shut_down(connection: HTTPConnection, is_over: threading.Event) -> None:
    is_over.set()
    stream = connection.sock
    if stream is not None:
        with contextlib.suppress(OSError):
            # Of the socket beneath TLS, too: an alert would wait for the other side.
            socket.socket.shutdown(stream, socket.SHUT_RDWR)


def _parse(url: str) -> _Address:
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:  # which would say what it took for the port: a part of a password, perhaps
        raise UsageError(
            "schema.registry.url: the host or the port cannot be read; in a user's name or "
            "password / is written as %2F, : as %3A and @ as %40"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        raise UsageError(
            f"schema.registry.url: {shown!r} is no address of a registry; it is like "
            "http://host:8081, or http://host:8080/apis/ccompat/v7 for Apicurio's"
        )
    return _Address(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


def _parse_json(content: bytes) -> object:
    if not content:
        return None
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found


def _message_of(answer: Answer) -> str:
    document = answer.document
    found = document.get("message") if isinstance(document, dict) else None
    return f" ({found})" if isinstance(found, str) else ""


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
