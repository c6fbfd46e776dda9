"""The certificates of a listener with TLS, and whom the certificate of a client names. A shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from moldau.config.listener_options import ListenerOptions
from moldau.model import ANONYMOUS, USER, Principal
from moldau.security.rules.certificate_names import (
    MappingRule,
    distinguished_name,
    map_name,
)
from moldau.security.watched_context import WatchedContext


class ListenerTls:
    """The certificates of one listener. Implements `net.port.ServerTls`."""

    def __init__(
        self,
        watched: WatchedContext[ListenerOptions],
        rules: Sequence[MappingRule],
        on_refused: Callable[[str, str], None],
    ) -> None:
        """`on_refused` hears of a client's host, and why it was refused."""
        self._watched = watched
        self._rules = rules
        self.refused = on_refused

    @property
    def context(self) -> Any:
        return self._watched.context

    def identify(self, certificate: Mapping[str, Any]) -> Principal:
        if not certificate:
            return ANONYMOUS
        name = distinguished_name(certificate["subject"])
        mapped = map_name(name, self._rules)
        if mapped is None:
            raise ValueError(f"has the name {name}, which no ssl.principal.mapping.rules take")
        return Principal(USER, mapped)
