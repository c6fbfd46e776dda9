"""The broker's options as they are now.

`BrokerOptions` never changes; when a dynamic setting does, others take the place of the old ones
here. Whoever needs the newest value keeps this object and reads `options` at each use. The one
mutable thing of the room: it belongs to the broker's event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import UNKNOWN_BROKER_SETTINGS
from moldau.errors import ConfigurationError

_log = logging.getLogger("moldau.config")


class CurrentBrokerOptions:
    """Holds the options in force, and is the `net.port.ConnectionLimits` of the listeners."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self._static = static
        self._take(BrokerOptions.resolve(static))

    def _take(self, options: BrokerOptions) -> None:
        self.options = options
        self.socket_request_max_bytes = options.socket_request_max_bytes  # asked for each request

    def apply(self, dynamic: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Let what was set dynamically, for this broker and for all, come into force.

        Values that cannot be, written past the brokers, leave those in force that are; when the
        broker has just started these are a guess, by which nothing is deleted or compacted.
        """
        try:
            self._take(BrokerOptions.resolve(self._static, dynamic, default))
        except ConfigurationError as error:
            _log.error("the broker's dynamic settings are not taken: %s", error)
            layers = self.options.layers
            if not layers.dynamic and not layers.default_dynamic:
                self._take(BrokerOptions.resolve(self._static, {}, UNKNOWN_BROKER_SETTINGS))

    @property
    def max_connections(self) -> int:
        return self.options.max_connections

    @property
    def max_connections_per_ip(self) -> int:
        return self.options.max_connections_per_ip

    def max_connections_for(self, host: str) -> int:
        return self.options.max_connections_for(host)

    def max_connections_on(self, listener_name: str) -> int:
        return self.options.max_connections_on(listener_name)

    @property
    def max_connection_creation_rate(self) -> int:
        return self.options.max_connection_creation_rate

    def max_connection_creation_rate_on(self, listener_name: str) -> int:
        return self.options.max_connection_creation_rate_on(listener_name)

    def is_protected(self, listener_name: str) -> bool:
        return self.options.is_protected(listener_name)

    @property
    def connections_max_idle_ms(self) -> int:
        return self.options.connections_max_idle_ms
