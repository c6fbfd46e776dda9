"""What a handler is given beside its request."""

from __future__ import annotations

from typing import NamedTuple

from moldau.broker.services import Services
from moldau.net.port import Connection
from moldau.wire.headers import RequestHeader


class RequestContext(NamedTuple):
    """A named tuple: one is made for each request."""

    header: RequestHeader
    connection: Connection
    services: Services

    @property
    def version(self) -> int:
        return self.header.api_version
