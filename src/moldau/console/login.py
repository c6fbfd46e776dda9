"""The login page: a plain form, which needs no script, and what it is sent to."""

from __future__ import annotations

from html import escape
from urllib.parse import parse_qs, quote

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from moldau.console.data.cluster import EXPECTED, failure_text
from moldau.console.guards import LOGIN_PATH, LOGOUT_PATH, SESSION_COOKIE, SESSION_PATH
from moldau.console.rules.logins import LONGEST_SECONDS, local_path
from moldau.console.sessions import Sessions, TooManyAttemptsError
from moldau.console.settings import ConsoleSettings
from moldau.errors import SaslAuthenticationError

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
