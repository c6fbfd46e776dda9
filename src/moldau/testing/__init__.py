"""For people who test software that uses Kafka: brokers in the test's process, virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.testing.manual_clock import ManualClock
    from moldau.testing.memory_files import MemoryFiles
    from moldau.testing.memory_network import MemoryNetwork
    from moldau.testing.running_broker import RunningBroker, broker
    from moldau.testing.running_cluster import RunningCluster, cluster
    from moldau.testing.secured_broker import SecuredBroker, secured_broker
    from moldau.testing.simulated_cluster import SimulatedCluster

__all__ = (
    "ManualClock",
    "MemoryFiles",
    "MemoryNetwork",
    "RunningBroker",
    "RunningCluster",
    "SecuredBroker",
    "SimulatedCluster",
    "broker",
    "cluster",
    "secured_broker",
)

_HOMES = {
    "ManualClock": "moldau.testing.manual_clock",
    "MemoryFiles": "moldau.testing.memory_files",
    "MemoryNetwork": "moldau.testing.memory_network",
    "RunningBroker": "moldau.testing.running_broker",
    "RunningCluster": "moldau.testing.running_cluster",
    "SecuredBroker": "moldau.testing.secured_broker",
    "SimulatedCluster": "moldau.testing.simulated_cluster",
    "broker": "moldau.testing.running_broker",
    "cluster": "moldau.testing.running_cluster",
    "secured_broker": "moldau.testing.secured_broker",
}


def __getattr__(name: str) -> object:
    """Load a name when it is asked for: the pytest plugin must not cost every session."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    """What there is, also before it was asked for."""
    return sorted({*globals(), *__all__})
