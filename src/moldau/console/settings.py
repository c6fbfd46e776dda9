"""What a console is told: which cluster, where to listen, what may be done. Values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from moldau.errors import ConfigurationError, UsageError

if TYPE_CHECKING:
    from moldau.client.admin.client import AsyncAdmin
    from moldau.schemas.registry import SchemaRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineQueryView:
    """One query: what it has not read yet, and what it put aside."""

    name: str
    lag: int
    set_aside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """One pipeline at one moment; `failure` stands where it could not be looked at."""

    name: str
    file: str
    state: str
    is_running: bool = False
    last_run: str = ""
    queries: tuple[PipelineQueryView, ...] = ()
    failure: str = ""


DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8092
"""A thousand below the broker's. When it is taken, and was not asked for, any free one is used."""

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

PipelineStatuses = Callable[[], Sequence[PipelineView]]
"""Looks at the pipelines that the console was told of. Blocks: it is called in a thread."""

MetricsPages = Callable[["AsyncAdmin"], Awaitable[Mapping[str, str]]]
"""What the metrics ports of brokers say, by their addresses, as far as they answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """See the module."""

    bootstrap: str
    host: str = DEFAULT_HOST
    port: int | None = None  # None: the default one, or any
    is_read_only: bool = False
    client_options: Mapping[str, object] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )
    """For every client of the cluster, by Kafka's names: where security settings go. Passwords may
    be among them, so that they are not shown."""
    with_login: bool = False  # people log in, and their clients are theirs
    certificate: Path | None = None  # a PEM file with the chain and its key: the console speaks TLS
    public_url: str | None = None  # how browsers call it, where a proxy stands before it
    pipelines: PipelineStatuses | None = None
    metrics_pages: MetricsPages | None = None
    registry: SchemaRegistry | None = None  # by which keys and values are read that name a schema

    @property
    def is_encrypted(self) -> bool:
        """Whether nobody on the way can read what browsers and the console say to each other."""
        return self.certificate is not None or (self.public_url or "").startswith("https:")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the console."""
        return is_loopback(self.host)


def find_exposure(settings: ConsoleSettings, *, is_allowed: bool) -> Sequence[str]:
    """What others than this machine could do; a ConfigurationError unless that was allowed."""
    if settings.is_local:
        return ()
    found = []
    if not settings.with_login:
        can = "read every record" + (
            "" if settings.is_read_only else ", and change and delete topics"
        )
        found.append(
            f"the console listens on {settings.host} without a login: whoever reaches it can {can}"
        )
    if not settings.is_encrypted:
        what = "passwords and records" if settings.with_login else "records"
        found.append(
            f"the console listens on {settings.host} without https: who is on the way reads {what}"
        )
    if found and not is_allowed:
        raise ConfigurationError(
            f"{'; '.join(found)}. Keep it on 127.0.0.1 and put a proxy before it (--public-url), "
            "give it a --certificate and a cluster with users, or start it with --insecure"
        )
    return found


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
    if not colon and not text.isdecimal():  # a bare number is meant as a port, and is no host
        return host or text or DEFAULT_HOST, None
    if not (colon and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise UsageError(
            f"{text!r} is not of the form HOST:PORT; one looks like {DEFAULT_HOST}:{DEFAULT_PORT}"
        )
    return host or DEFAULT_HOST, int(port)
