"""The web application: NiceGUI's pages, the clients' life, and who may ask. Composition root."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.types import ASGIApp, Receive, Scope, Send

from moldau.console.console import Console, make_console
from moldau.console.pages import ALL_PAGES
from moldau.console.settings import ConsoleSettings

_STYLES = Path(__file__).parent / "pages" / "console.css"
_RECONNECT_SECONDS = 30.0
"""A laptop that slept, or a phone that was put away for a moment, goes on where it was; after that
the session is over, and all that it had in memory is gone."""


class OnlyTheseHosts:
    """Refuses requests that name another host.

    A console on loopback is protected by nothing but its address. Any web page can have its own
    name point to 127.0.0.1 and then talk to the console as its own origin; the name gives it away.
    """

    def __init__(self, application: ASGIApp, hosts: frozenset[str]) -> None:
        self.app = application
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_known(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 421, "headers": headers})
            body = b"This console is for its own machine: open it as localhost or 127.0.0.1.\n"
            await send({"type": "http.response.body", "body": body})

    def _is_known(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1").lower()
                return (host if host.endswith("]") else host.rsplit(":", 1)[0]) in self._hosts
        return False


def build_application(settings: ConsoleSettings, hosts: frozenset[str] | None) -> ASGIApp:
    """Call once in a process: NiceGUI keeps its pages in module state."""
    console = make_console(settings)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        console.watch.start()
        try:
            yield
        finally:
            await _close(console)

    application = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    nicegui_app.add_static_files("/style", _STYLES.parent, max_cache_age=3600)
    for page in ALL_PAGES:
        page.register(console)
    ui.run_with(
        application,
        title="Moldau",
        favicon="🌊",
        reconnect_timeout=_RECONNECT_SECONDS,
        message_history_length=200,
        binding_refresh_interval=1.0,
        dark=None,
        show_welcome_message=False,
        tailwind=False,
    )
    return application if hosts is None else OnlyTheseHosts(application, hosts)


async def _close(console: Console) -> None:
    await console.watch.stop()
    await console.cluster.close()
