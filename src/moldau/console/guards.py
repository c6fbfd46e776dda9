"""Who may talk to the console at all: wrappers around the application, and the login page.

The wrappers are asked from the outside in. The login page is a plain form, without a script.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from html import escape
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moldau.console.cluster import EXPECTED, failure_text
from moldau.console.sessions import (
    LONGEST_SECONDS,
    Console,
    Sessions,
    TooManyAttemptsError,
    local_path,
)
from moldau.console.settings import ConsoleSettings
from moldau.errors import SaslAuthenticationError

SESSION_COOKIE = "moldau-session"
LOGIN_PATH, LOGOUT_PATH = "/login", "/logout"
SESSION_PATH = "/session"
"""Answered to whoever is logged in: how a tab that has lost its socket finds out that it is not."""
_OPEN = {
    LOGIN_PATH: ("GET", "POST"),
    LOGOUT_PATH: ("POST",),
    "/favicon.ico": ("GET",),
    "/style/login.css": ("GET",),
}
"""All that is answered without a session. NiceGUI makes a page of anything that it does not know,
which takes memory for a while: nobody is to have it do so who has not logged in."""
_PORTS = {"http": ":80", "https": ":443"}
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HEADERS = (
    # Vue compiles templates in the browser and NiceGUI's start is a script in the page: both need
    # "unsafe". What is left keeps whatever comes into a page from calling elsewhere.
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
        b"style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; "
        b"object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class OnlyTheseHosts:
    """Refuses requests that name another host."""

    def __init__(self, application: ASGIApp, hosts: frozenset[str]) -> None:
        self.app = application
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = find_header(scope, b"host") or ""
        if scope["type"] == "lifespan" or _without_port(host) in self._hosts:
            await self.app(scope, receive, send)
        else:
            text = "This console is for its own machine: open it as localhost or 127.0.0.1."
            await refuse(scope, send, 421, text)


class OnlyOwnOrigin:
    """Refuses sockets, and requests that change something, of pages that are not the console's."""

    def __init__(self, application: ASGIApp, public_url: str | None) -> None:
        self.app = application
        self._public = None if public_url is None else _origin(public_url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_own(scope):
            await self.app(scope, receive, send)
        else:
            await refuse(scope, send, 403, "This request comes from another web page.")

    def _is_own(self, scope: Scope) -> bool:
        if scope["type"] == "http" and scope["method"] in _SAFE_METHODS:
            return True
        origin = find_header(scope, b"origin")
        if origin is None:  # not a browser, which always tells
            return True
        host = urlsplit(origin).netloc.lower()
        return host == (find_header(scope, b"host") or "") or _origin(origin) == self._public


class SafeHeaders:
    """What browsers are told about every answer: no frames, no scripts from elsewhere."""

    def __init__(self, application: ASGIApp) -> None:
        self.app = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class HeadAsGet:
    """Answers HEAD as GET, without the body: NiceGUI's pages know GET alone."""

    def __init__(self, application: ASGIApp) -> None:
        self.app = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        if scope["type"] == "http" and scope["method"] == "HEAD":
            await self.app({**scope, "method": "GET"}, receive, send_without_body)
        else:
            await self.app(scope, receive, send)


class SharedConsole:
    """Without a login: everybody has the same console."""

    def __init__(self, application: ASGIApp, console: Console) -> None:
        self.app = application
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _hand_in(scope, self._console)
        await self.app(scope, receive, send)


class OnlyLoggedIn:
    """With a login: each session has its own console; who has none is asked to log in."""

    def __init__(self, application: ASGIApp, sessions: Sessions) -> None:
        self.app = application
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        console = self._sessions.find(find_cookie(scope, SESSION_COOKIE))
        path = scope["path"]
        if console is not None:
            _hand_in(scope, console)
            await self.app(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] in _OPEN.get(path, ()):
            await self.app(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] in _SAFE_METHODS and _is_page(path):
            await _redirect(send, f"{LOGIN_PATH}?next={quote(_full_path(scope), safe='')}")
        else:
            await refuse(scope, send, 401, "Log in first.")


def find_header(scope: Scope, wanted: bytes) -> str | None:
    for name, value in scope.get("headers", ()):
        if name == wanted:
            text: str = value.decode("latin-1")
            return text.lower() if wanted in (b"host", b"origin") else text
    return None


def find_cookie(scope: Scope, wanted: str) -> str | None:
    for part in (find_header(scope, b"cookie") or "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return value
    return None


async def refuse(scope: Scope, send: Send, status: int, text: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})


async def _redirect(send: Send, location: str) -> None:
    headers = [(b"location", location.encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _hand_in(scope: Scope, console: Console) -> None:
    if scope["type"] != "lifespan":
        state: MutableMapping[str, object] = scope.setdefault("state", {})
        state["console"] = console


def _is_page(path: str) -> bool:
    return path != SESSION_PATH and not path.startswith("/_nicegui")


def _full_path(scope: Scope) -> str:
    query = scope.get("query_string", b"").decode("latin-1")
    return quote(scope["path"]) + (f"?{query}" if query else "")


def _without_port(host: str) -> str:
    return host if host.endswith("]") else host.rsplit(":", 1)[0]


def _origin(url: str) -> tuple[str, str]:
    """As browsers say it: without the port that goes without saying."""
    parts = urlsplit(url.lower())
    return parts.scheme, parts.netloc.removesuffix(_PORTS.get(parts.scheme, ""))


_MOST_BYTES = 8 * 1024
_NO_STORE = {"Cache-Control": "no-store"}
_WRONG = "The cluster does not know this user with this password."


def add_login(application: FastAPI, sessions: Sessions, settings: ConsoleSettings) -> None:
    @application.get(LOGIN_PATH)
    async def show_login(request: Request) -> Response:
        return _page(settings, next_path=request.query_params.get("next", "/"))

    @application.post(LOGIN_PATH)
    async def log_in(request: Request) -> Response:
        form = await _read_form(request)
        if form is None:
            return _page(settings, message="That is too much.", status=413)
        user, next_path = form.get("user", "").strip(), form.get("next", "/")
        address = "" if request.client is None else request.client.host
        try:
            token = await sessions.log_in(user, form.get("password", ""), address)
        except TooManyAttemptsError as error:
            wait = {"Retry-After": str(error.seconds)}
            return _page(settings, user, next_path, f"{error}.", 429, wait)
        except SaslAuthenticationError:
            return _page(settings, user, next_path, _WRONG, 401)
        except EXPECTED as error:
            return _page(settings, user, next_path, f"{failure_text(error)}.", 503)
        await sessions.log_out(request.cookies.get(SESSION_COOKIE))  # the one that it replaces
        answer = RedirectResponse(local_path(next_path), 303, _NO_STORE)
        answer.set_cookie(
            SESSION_COOKIE,
            token,
            max_age=int(LONGEST_SECONDS),
            httponly=True,
            samesite="lax",  # a link to a topic works for whoever is logged in; see OnlyOwnOrigin
            secure=_is_encrypted(request, settings),
        )
        return answer

    @application.get(SESSION_PATH)
    async def is_logged_in() -> Response:
        return Response(status_code=204, headers=_NO_STORE)

    @application.post(LOGOUT_PATH)
    async def log_out(request: Request) -> Response:
        await sessions.log_out(request.cookies.get(SESSION_COOKIE))
        answer = RedirectResponse(LOGIN_PATH, 303, _NO_STORE)
        answer.delete_cookie(SESSION_COOKIE)
        return answer


def _is_encrypted(request: Request, settings: ConsoleSettings) -> bool:
    return request.url.scheme == "https" or (settings.public_url or "").startswith("https:")


async def _read_form(request: Request) -> dict[str, str] | None:
    """None where it is longer than a name, a password and a path can be."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            return None
    try:
        fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        return None
    return {name: values[0] for name, values in fields.items()}


def _page(
    settings: ConsoleSettings,
    user: str = "",
    next_path: str = "/",
    message: str = "",
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    alert = f'<p class="problem" role="alert">{escape(message)}</p>' if message else ""
    focus_user, focus_password = ("", "autofocus") if user else ("autofocus", "")
    text = _TEMPLATE.format(
        cluster=escape(settings.bootstrap.replace(",", ", ")),
        alert=alert,
        next=escape(local_path(next_path), quote=True),
        user=escape(user, quote=True),
        focus_user=focus_user,
        focus_password=focus_password,
        action=quote(LOGIN_PATH),
    )
    return HTMLResponse(text, status, {**_NO_STORE, **(headers or {})})


_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in · Moldau</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/style/login.css"></head>
<body><main><h1>Moldau</h1>
<p>Log in as a user of the cluster at <span class="cluster">{cluster}</span></p>
{alert}
<form method="post" action="{action}">
<input type="hidden" name="next" value="{next}">
<label>User<input name="user" value="{user}" autocomplete="username" autocapitalize="none"
 spellcheck="false" required {focus_user}></label>
<label>Password<input name="password" type="password" autocomplete="current-password"
 required {focus_password}></label>
<button type="submit">Log in</button>
</form></main></body></html>
"""
