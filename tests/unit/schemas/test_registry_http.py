"""A registry that nobody listens for: told at once, and not waited for as long as a slow one."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from moldau.errors import RegistryUnreachableError
from moldau.schemas import http
from moldau.schemas.http import RegistryHttp


def registry(url: str, timeout_seconds: float | None = None) -> RegistryHttp:
    return RegistryHttp([url], headers={}, tls=None, timeout_seconds=timeout_seconds)


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """An address that nobody listens at, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken


def url_of(taken: socket.socket) -> str:
    return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_refused_connection_is_told_at_once_and_given_up_soon(
    caplog: pytest.LogCaptureFixture, taken: socket.socket
) -> None:
    url = url_of(taken)
    with (
        caplog.at_level(logging.WARNING, "moldau.schemas"),
        pytest.raises(RegistryUnreachableError, match=rf"within 2 seconds \({url}: Connection ref"),
    ):
        registry(url).request("GET", "/subjects")
    (told,) = [record.getMessage() for record in caplog.records]
    assert told == f"no schema registry answers ({url}: Connection refused); trying again"


class Subjects(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def started_once_it_is_missed(taken: socket.socket) -> Iterator[None]:
    """A registry that listens when the first has been told that nobody does."""
    servers: list[HTTPServer] = []

    class Starter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            server = HTTPServer(taken.getsockname(), Subjects, bind_and_activate=False)
            server.socket.close()
            server.socket = taken
            server.server_activate()
            Thread(target=server.serve_forever, daemon=True).start()
            servers.append(server)

    logger, starter = logging.getLogger("moldau.schemas"), Starter()
    logger.addHandler(starter)
    try:
        yield
    finally:
        logger.removeHandler(starter)
        for server in servers:
            server.shutdown()
            server.server_close()


def test_a_time_that_was_given_counts_for_a_registry_that_is_being_started(
    monkeypatch: pytest.MonkeyPatch, taken: socket.socket
) -> None:
    monkeypatch.setattr(http, "_NOBODY_SECONDS", 0.0)
    with started_once_it_is_missed(taken):
        assert registry(url_of(taken), 120.0).request("GET", "/subjects").status == 200
