"""What a console is told: which cluster, where to listen, what may be done. Values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from types import MappingProxyType

from moldau.console.rules.pipeline_rows import PipelineView
from moldau.errors import ConfigurationError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8092
"""A thousand below the broker's. When it is taken, and was not asked for, any free one is used."""

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

PipelineStatuses = Callable[[], Sequence[PipelineView]]
"""Looks at the pipelines that the console was told of. Blocks: it is called in a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """See the module."""

    bootstrap: str
    host: str = DEFAULT_HOST
    port: int | None = None  # None: the default one, or any
    is_read_only: bool = False
    client_options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    """For every client of the cluster, by Kafka's names: where security settings go."""
    pipelines: PipelineStatuses | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the console."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def parse_listen(text: str) -> tuple[str, int | None]:
    """HOST:PORT, :PORT or HOST; port 0 is any that is free."""
    host, colon, port = text.rpartition(":")
    if text.startswith("[") and text.endswith("]"):
        host, colon, port = text, "", ""
    if not colon:
        return host or text or DEFAULT_HOST, None
    if not (port.isascii() and port.isdecimal() and int(port) < 65536):
        raise ConfigurationError(
            f"{text!r} is not of the form HOST:PORT; one looks like {DEFAULT_HOST}:{DEFAULT_PORT}"
        )
    return host or DEFAULT_HOST, int(port)
