"""For people who test software that uses Kafka: brokers in the test's process, virtual time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.simulation.cluster import SimulatedCluster
    from moldau.simulation.manual_clock import ManualClock
    from moldau.simulation.memory_files import MemoryFiles
    from moldau.simulation.memory_network import MemoryNetwork
    from moldau.testing.running_broker import RunningBroker, broker
    from moldau.testing.running_cluster import RunningCluster, cluster
    from moldau.testing.running_secured_broker import SecuredBroker, secured_broker
else:
    _HOMES = {
        "ManualClock": "moldau.simulation.manual_clock",
        "MemoryFiles": "moldau.simulation.memory_files",
        "MemoryNetwork": "moldau.simulation.memory_network",
        "RunningBroker": "moldau.testing.running_broker",
        "RunningCluster": "moldau.testing.running_cluster",
        "SecuredBroker": "moldau.testing.running_secured_broker",
        "SimulatedCluster": "moldau.simulation.cluster",
        "broker": "moldau.testing.running_broker",
        "cluster": "moldau.testing.running_cluster",
        "secured_broker": "moldau.testing.running_secured_broker",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__():
        special = (name for name in globals() if name.startswith("__"))
        return sorted({*special, *_HOMES})


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
