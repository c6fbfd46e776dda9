"""Whether another connection may be accepted, and when. Rule.

As Kafka's `ConnectionQuotas` (KIP-402, KIP-612): where there is no slot the listener does not
accept, and clients wait in the kernel's queue until another connection ends. The listener of the
brokers is protected where there are others: it has a slot while clients hold them all, and then a
connection of a client is closed for it.
"""

from __future__ import annotations

from typing import NamedTuple


class Usage(NamedTuple):
    """How many connections there are, and may be."""

    held: int
    most: int


def has_slot(of_listener: Usage, of_broker: Usage, *, is_protected: bool) -> bool:
    if of_listener.held >= of_listener.most:
        return False
    return is_protected or of_broker.held < of_broker.most


def excess(of_broker: Usage) -> int:
    """How many connections of clients have to be closed."""
    return max(0, of_broker.held - of_broker.most)


class CreationPace(NamedTuple):
    """Connections at a bounded rate: in any second at most twice the rate, in the long run the
    rate. `due` is when the next one would come if all came evenly."""

    due: float = float("-inf")

    def wait(self, rate: int, now: float) -> float:
        """Seconds until another may be accepted."""
        if rate <= 0:
            return float("inf")
        return max(0.0, self.due - now - (1.0 - 1.0 / rate))

    def accepted(self, rate: int, now: float) -> CreationPace:
        return self if rate <= 0 else CreationPace(max(self.due, now) + 1.0 / rate)
