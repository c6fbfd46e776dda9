"""Who may talk to a console: hosts, origins, sessions. Requests as a server hands them in."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("starlette")

from moldau.console.guards import (
    HeadAsGet,
    OnlyLoggedIn,
    OnlyOwnOrigin,
    OnlyTheseHosts,
    SafeHeaders,
    SharedConsole,
)
from moldau.console.sessions import Console, Sessions

Message = MutableMapping[str, Any]
CONSOLE = cast("Console", SimpleNamespace(user="alice"))


class Inside:
    """What is guarded: says which console it was handed."""

    def __init__(self) -> None:
        self.console: object = None
        self.is_reached = False

    async def __call__(self, scope: Message, receive: object, send: Any) -> None:
        self.is_reached = True
        self.console = scope.get("state", {}).get("console")
        status = 200 if scope["method"] in ("GET", "POST") else 405
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"a page"})


def ask(application: Any, path: str = "/", **given: Any) -> list[Message]:
    """The messages that a request is answered with. Names of headers are arguments."""
    kind, method = given.pop("kind", "http"), given.pop("method", "GET")
    headers = [(name.encode(), value.encode()) for name, value in given.items()]
    scope = {"type": kind, "method": method, "path": path, "headers": headers}
    scope["query_string"] = b"a=b" if path != "/" else b""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(application(scope, None, send))
    return sent


class TestOnlyTheseHosts:
    @pytest.mark.parametrize("host", ["localhost:8092", "127.0.0.1", "[::1]:8092", "LOCALHOST"])
    def test_own_names(self, host: str) -> None:
        guard = OnlyTheseHosts(Inside(), frozenset({"localhost", "127.0.0.1", "[::1]"}))
        assert ask(guard, host=host)[0]["status"] == 200

    @pytest.mark.parametrize("host", ["evil.example:8092", "localhost.evil.example", "", "x]"])
    def test_others(self, host: str) -> None:
        guard = OnlyTheseHosts(Inside(), frozenset({"localhost", "127.0.0.1", "[::1]"}))
        assert ask(guard, host=host)[0]["status"] == 421
        assert ask(guard, host=host, kind="websocket") == [
            {"type": "websocket.close", "code": 1008}
        ]


class TestOnlyOwnOrigin:
    HOST = "127.0.0.1:8092"

    def reached(self, public_url: str | None = None, **given: Any) -> bool:
        inside = Inside()
        ask(OnlyOwnOrigin(inside, public_url), host=self.HOST, **given)
        return inside.is_reached

    def test_a_page_of_the_console_opens_sockets_and_posts(self) -> None:
        own = f"http://{self.HOST}"
        assert self.reached(kind="websocket", origin=own)
        assert self.reached(method="POST", origin=own)

    @pytest.mark.parametrize(
        "origin", ["http://evil.example", "http://127.0.0.1:9999", "null", "http://localhost:8092"]
    )
    def test_another_page_does_not(self, origin: str) -> None:
        assert not self.reached(kind="websocket", origin=origin)
        assert not self.reached(method="POST", origin=origin)

    def test_links_from_elsewhere_work(self) -> None:
        assert self.reached(origin="http://evil.example")

    def test_behind_a_proxy_the_public_address_counts(self) -> None:
        url = "https://console.example/"
        assert self.reached(url, kind="websocket", origin="https://console.example")
        assert not self.reached(url, kind="websocket", origin="http://console.example")
        with_port = "https://console.example:443"
        assert self.reached(with_port, kind="websocket", origin="https://console.example")
        assert not self.reached(with_port, kind="websocket", origin="https://console.example:80")


class TestOnlyLoggedIn:
    def guard(self, inside: Inside) -> OnlyLoggedIn:
        sessions = SimpleNamespace(find=lambda token: CONSOLE if token == "right" else None)
        return OnlyLoggedIn(inside, cast("Sessions", sessions))

    def test_a_session_has_its_own_console(self) -> None:
        inside = Inside()
        ask(self.guard(inside), cookie="moldau-theme=dark; moldau-session=right")
        assert inside.console is CONSOLE

    def test_a_page_leads_to_the_login_and_back(self) -> None:
        inside = Inside()
        (start, _) = ask(self.guard(inside), "/topics/a b", cookie="moldau-session=wrong")
        assert start["status"] == 303
        assert dict(start["headers"])[b"location"] == b"/login?next=%2Ftopics%2Fa%2520b%3Fa%3Db"
        assert not inside.is_reached

    @pytest.mark.parametrize("path", ["/session", "/_nicegui/3/x.js", "/_nicegui_ws/socket.io/"])
    def test_what_pages_load_is_refused(self, path: str) -> None:
        inside = Inside()
        assert ask(self.guard(inside), path)[0]["status"] == 401
        assert ask(self.guard(inside), path, kind="websocket")[0]["type"] == "websocket.close"
        assert not inside.is_reached

    def test_only_the_login_is_open(self) -> None:
        inside = Inside()
        assert ask(self.guard(inside), "/login", method="POST")[0]["status"] == 200
        assert ask(self.guard(inside), "/style/login.css")[0]["status"] == 200
        assert ask(self.guard(inside), "/login/../topics")[0]["status"] == 303
        assert inside.console is None

    @pytest.mark.parametrize(
        ("method", "path"),
        [("GET", "/logout"), ("PUT", "/login"), ("HEAD", "/login"), ("GET", "/style/nothing")],
    )
    def test_no_page_is_made_for_what_nobody_serves(self, method: str, path: str) -> None:
        inside = Inside()
        ask(self.guard(inside), path, method=method)
        assert not inside.is_reached


def test_without_a_login_everybody_has_the_same_console() -> None:
    inside = Inside()
    ask(SharedConsole(inside, CONSOLE))
    assert inside.console is CONSOLE


def test_no_page_may_be_put_in_a_frame() -> None:
    headers = dict(ask(SafeHeaders(Inside()))[0]["headers"])
    assert headers[b"x-frame-options"] == b"DENY"
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]


def test_head_is_answered_as_get_is_without_the_body() -> None:
    start, body = ask(HeadAsGet(Inside()), method="HEAD")
    assert (start["status"], body["body"]) == (200, b"")
    assert ask(HeadAsGet(Inside()), method="GET")[1]["body"] == b"a page"
    assert ask(HeadAsGet(Inside()), method="DELETE")[0]["status"] == 405
