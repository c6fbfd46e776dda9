"""The broker's options as they are now.

`BrokerOptions` never changes; when a dynamic config does, a new one takes the old one's place
here. Whoever needs the newest value keeps this object and reads `options` at each use. The one
mutable thing of the room: it belongs to the broker's event loop.
"""

from __future__ import annotations

from moldau.config.broker_options import BrokerOptions


class CurrentBrokerOptions:
    """Holds the options in force, and is the `net.port.ConnectionLimits` of the listeners."""

    def __init__(self, options: BrokerOptions) -> None:
        self.options = options

    def replace(self, options: BrokerOptions) -> None:
        """Let other options come into force."""
        self.options = options

    @property
    def socket_request_max_bytes(self) -> int:
        return self.options.socket_request_max_bytes

    @property
    def max_connections(self) -> int:
        return self.options.max_connections

    @property
    def max_connections_per_ip(self) -> int:
        return self.options.max_connections_per_ip

    def max_connections_for(self, host: str) -> int:
        return self.options.max_connections_for(host)

    @property
    def connections_max_idle_ms(self) -> int:
        return self.options.connections_max_idle_ms
