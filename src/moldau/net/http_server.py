"""A small HTTP server for what people and scrapers read: GET and HEAD, nothing else.

Bounded in everything: the request's head, how long it may take to come, how many connections there
are, how long one may be idle. It runs on the broker's loop and never blocks it; what an answer
costs is up to the handler.

Why not a library: the broker has no web framework, and this needs a request line, a few headers and
keep-alive. `parse_request` is a rule; the rest is a shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from moldau.tasks import TaskSupervisor

_log = logging.getLogger("moldau.net")

MAX_HEAD_BYTES: Final = 8192
MAX_CONNECTIONS: Final = 64
HEAD_SECONDS: Final = 10.0
"""For a request to come, once it has begun; also for an answer to be taken."""

IDLE_SECONDS: Final = 75.0
_BACKLOG: Final = 32
"""Also how often asyncio tries to accept when no descriptor is left, before it waits for a second:
each of them is told in the log."""

_END_OF_HEAD: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request without a body."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    keeps_alive: bool = True


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200


class BadHttpError(Exception):
    """A request that is not served; it ends its connection."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


Handle = Callable[[HttpRequest], Awaitable[HttpAnswer]]


def parse_request(head: bytes) -> HttpRequest:
    """Read a request up to its empty line. Raises `BadHttpError`."""
    try:
        first, *rest = head.removesuffix(_END_OF_HEAD).decode("ascii").split("\r\n")
        method, target, version = first.split(" ")
    except ValueError:
        raise BadHttpError(400, "that is no HTTP request") from None
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadHttpError(505, f"{version} is not spoken here")
    if method not in ("GET", "HEAD"):
        raise BadHttpError(405, "only GET and HEAD are served")
    headers = {}
    for line in rest:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise BadHttpError(400, "a header has no name")
        headers[name.strip().lower()] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadHttpError(400, "a request here has no body")
    try:
        parts = urlsplit(target)
    except ValueError:
        raise BadHttpError(400, "the address makes no sense") from None
    connection = headers.get("connection", "").lower()
    keeps_alive = connection != "close" if version == "HTTP/1.1" else connection == "keep-alive"
    query = dict(parse_qsl(parts.query, max_num_fields=20))
    return HttpRequest(method, parts.path, query, headers, keeps_alive)


def encode_answer(answer: HttpAnswer, *, with_body: bool, keeps_alive: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        f"Connection: {'keep-alive' if keeps_alive else 'close'}",
        "Cache-Control: no-store",
    ]
    head = "\r\n".join(lines).encode("ascii") + _END_OF_HEAD
    return head + answer.body if with_body else head


class HttpServer:
    """Listens on one address; `handle` answers. `listen` once, `close` once."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._tasks = TaskSupervisor(_report)
        self._open = 0
        self.host = ""
        self.port = 0

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError when the address cannot be had."""
        self._server = await asyncio.start_server(
            self._accept, host, port, limit=MAX_HEAD_BYTES, backlog=_BACKLOG, start_serving=True
        )
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._tasks.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._open += 1
        task = self._tasks.spawn("a connection of HTTP", self._serve(reader, writer))
        task.add_done_callback(lambda _: self._ended(writer))

    def _ended(self, writer: asyncio.StreamWriter) -> None:
        self._open -= 1
        writer.transport.abort()  # what was written has left, or nobody takes it

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            while await self._answer_one(reader, writer):
                pass

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether another request may come."""
        async with asyncio.timeout(IDLE_SECONDS):
            first = await reader.readexactly(1)
        request: HttpRequest | None = None
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                request = parse_request(first + await reader.readuntil(_END_OF_HEAD))
            answer = await self._handle(request)
        except asyncio.LimitOverrunError:
            answer = _refuse(431, f"the head of a request has {MAX_HEAD_BYTES} bytes at most")
        except BadHttpError as error:
            answer = _refuse(error.status, str(error))
        except (OSError, asyncio.IncompleteReadError):
            raise
        except Exception:  # noqa: BLE001 a bug costs one answer, not the broker
            _log.exception("a request over HTTP failed")
            answer = _refuse(500, "internal error")
            request = None
        keeps_alive = request is not None and request.keeps_alive
        with_body = request is None or request.method != "HEAD"
        writer.write(encode_answer(answer, with_body=with_body, keeps_alive=keeps_alive))
        async with asyncio.timeout(HEAD_SECONDS):
            await writer.drain()
            if not keeps_alive:
                writer.close()
                await writer.wait_closed()
        return keeps_alive


def _refuse(status: int, reason: str) -> HttpAnswer:
    return HttpAnswer(f"{reason}\n".encode(), "text/plain; charset=utf-8", status)


def _report(name: str, error: BaseException) -> None:
    _log.error("%s ended: %s", name, error, exc_info=error)
