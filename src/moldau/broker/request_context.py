"""What a handler is given beside its request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.metrics.figures import ApiFigures
from moldau.model import Principal
from moldau.net.port import Connection
from moldau.wire.headers import RequestHeader

if TYPE_CHECKING:
    from moldau.broker.request_charge import RequestCharge
    from moldau.broker.sasl_session import SaslSession
    from moldau.broker.services import Services


class RequestContext:
    """One is made for each request. Slots, and not a named tuple: they are read in a seventh of
    the time, and handlers read a dozen of them."""

    __slots__ = ("charge", "connection", "figures", "header", "sasl", "services", "version")

    def __init__(
        self,
        header: RequestHeader,
        connection: Connection,
        services: Services,
        figures: ApiFigures | None = None,
        charge: RequestCharge | None = None,
        sasl: SaslSession | None = None,
    ) -> None:
        self.header = header
        self.version = header.api_version
        self.connection = connection
        self.services = services
        self.figures = figures
        self.charge = charge  # None while there are no quotas
        self.sasl = sasl  # the login of the connection, on listeners that ask for one

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.connection.principal

    @property
    def host(self) -> str:
        """The address that the request comes from."""
        return self.connection.peer_host

    @property
    def listener(self) -> str:
        """The name of the listener that the client came in by."""
        return self.connection.listener_name

    def count_error(self, code: int) -> None:
        """An answer by hand has an error in it; 0 is none."""
        if code and self.figures is not None:
            self.figures.count_error(code)
