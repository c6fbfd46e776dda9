"""Serves the console: HTTP and WebSocket by uvicorn, pages by NiceGUI. A shell.

A process of its own. NiceGUI and all that it brings is imported here and in `pages`, nowhere else.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable

from moldau.console.settings import DEFAULT_PORT, ConsoleSettings
from moldau.errors import StartupError

_OPTIONAL = (
    "pandas",
    "polars",
    "matplotlib",
    "plotly",
    "altair",
    "pyecharts",
    "anywidget",
    "numpy",
)
"""NiceGUI imports what it finds of these, for elements that no page here has: a second, and a
hundred megabytes, where all are installed. None makes an import fail, which it expects."""

_GRACE_SECONDS = 2
_MOST_MESSAGE_BYTES = 4 << 20
"""Of what a browser sends at once: a test record is the largest."""
_BACKLOG = 32
"""Also how often asyncio tries to accept when no descriptor is left, before it waits for a second:
each of them is told in the log, and uvicorn's own number is 2,048."""
_STDIN = 0

Announce = Callable[[str], None]


async def serve(settings: ConsoleSettings, announce: Announce, *, with_parent: bool) -> None:
    """Until SIGTERM or Ctrl-C; with a parent, until that has ended, too."""
    for name in _OPTIONAL:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    import uvicorn

    from moldau.console.pages import build_application

    listener = listen(settings)
    host, port = listener.getsockname()[:2]
    scheme = "http" if settings.certificate is None else "https"

    class Server(uvicorn.Server):
        """Says when it serves."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                announce(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")

    config = uvicorn.Config(
        build_application(settings),
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        ws_max_size=_MOST_MESSAGE_BYTES,
        ssl_certfile=settings.certificate,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = Server(config)

    def on_parent_gone() -> None:
        asyncio.get_running_loop().remove_reader(_STDIN)
        server.should_exit = True

    if with_parent:  # who keeps the other end of the pipe open, and writes nothing to it
        asyncio.get_running_loop().add_reader(_STDIN, on_parent_gone)
    await server.serve(sockets=[listener])


def listen(settings: ConsoleSettings) -> socket.socket:
    """The port asked for; the default one or else any, when none was."""
    host = settings.host.strip("[]")
    ports = (DEFAULT_PORT, 0) if settings.port is None else (settings.port,)
    for port in ports:
        try:
            return socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
            )
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            if in_use and port != ports[-1]:
                continue
            why = os.strerror(errno.EADDRINUSE) if in_use else error.strerror or error
            raise StartupError(
                f"the console cannot listen on {settings.host}:{port}: {why}; "
                "choose another address with --listen"
            ) from None
    raise AssertionError("unreachable: the last port is returned or raised for")
