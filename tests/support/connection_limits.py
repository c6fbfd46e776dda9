"""Connection limits that a test can change (`net.port.ConnectionLimits`)."""

from __future__ import annotations

from dataclasses import dataclass, field

_MANY = 1_000_000


@dataclass
class Limits:
    """Nothing is limited that a test does not limit."""

    socket_request_max_bytes: int = 100 << 20
    max_connections: int = _MANY
    max_connections_per_ip: int = _MANY
    max_connection_creation_rate: int = _MANY
    connections_max_idle_ms: int = 600_000
    by_host: dict[str, int] = field(default_factory=dict)
    by_listener: dict[str, int] = field(default_factory=dict)
    rate_by_listener: dict[str, int] = field(default_factory=dict)
    protected: str | None = None  # the listener of the brokers

    def max_connections_for(self, host: str) -> int:
        return self.by_host.get(host, self.max_connections_per_ip)

    def max_connections_on(self, listener_name: str) -> int:
        return self.by_listener.get(listener_name, _MANY)

    def max_connection_creation_rate_on(self, listener_name: str) -> int:
        return self.rate_by_listener.get(listener_name, _MANY)

    def is_protected(self, listener_name: str) -> bool:
        return listener_name == self.protected
