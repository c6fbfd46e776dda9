"""The web application: NiceGUI's pages, the clients' life, and who may ask. Composition root."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.types import ASGIApp

from moldau.clock import SystemClock
from moldau.console.guards import (
    HeadAsGet,
    OnlyLoggedIn,
    OnlyOwnOrigin,
    OnlyTheseHosts,
    SafeHeaders,
    SharedConsole,
    add_login,
)
from moldau.console.pages import access, cluster, groups, topic_messages, topics, transactions
from moldau.console.sessions import Console, Sessions, make_console
from moldau.console.settings import LOCAL_NAMES, ConsoleSettings

_PAGES = (
    cluster.register_overview,
    cluster.register_brokers,
    topics.register_topics,
    topic_messages.register,
    topics.register_partitions,
    topics.register_activity,
    topics.register_settings,
    topics.register_produce,
    groups.register_groups,
    groups.register_group,
    transactions.register,
    cluster.register_pipelines,
    access.register,
)

_STYLES = Path(__file__).parent
_RECONNECT_SECONDS = 30.0
"""A laptop that slept, or a phone that was put away for a moment, goes on where it was; after that
the session is over, and all that it had in memory is gone."""


def build_application(settings: ConsoleSettings) -> ASGIApp:
    """Call once in a process: NiceGUI keeps its pages in module state."""
    life = Sessions(settings, SystemClock()) if settings.with_login else make_console(settings)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if isinstance(life, Sessions):
            life.start()
        else:
            life.watch.start()
        try:
            yield
        finally:
            await (life.stop() if isinstance(life, Sessions) else life.close())

    application = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    if isinstance(life, Sessions):
        add_login(application, life, settings)
    for name in ("console.css", "login.css"):
        nicegui_app.add_static_file(
            local_file=_STYLES / name, url_path=f"/style/{name}", max_cache_age=3600
        )
    for register in _PAGES:
        register()
    nicegui_app.add_exception_handler(404, _show_missing)  # NiceGUI's own leads nowhere
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
    return _guard(application, life, settings)


async def _show_missing(_: Request, __: Exception) -> Response:
    return HTMLResponse(_MISSING, 404)


_MISSING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>No such page · Moldau</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/style/login.css"></head>
<body><main><h1>Moldau</h1>
<p>There is no page at this address.</p>
<p><a href="/">Overview</a> · <a href="/topics">Topics</a> · <a href="/groups">Groups</a></p>
</main></body></html>
"""


def _guard(application: ASGIApp, life: Sessions | Console, settings: ConsoleSettings) -> ASGIApp:
    """The last one is asked first."""
    guarded: ASGIApp = (
        OnlyLoggedIn(application, life)
        if isinstance(life, Sessions)
        else SharedConsole(application, life)
    )
    guarded = OnlyOwnOrigin(guarded, settings.public_url)
    if settings.is_local:
        hosts = {*LOCAL_NAMES}
        if settings.public_url is not None:
            hosts.add(urlsplit(settings.public_url).hostname or "")
        guarded = OnlyTheseHosts(guarded, frozenset(hosts))
    return HeadAsGet(SafeHeaders(guarded))
