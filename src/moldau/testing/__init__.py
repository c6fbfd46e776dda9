"""For people who test software that uses Kafka: brokers in the test's process, virtual time."""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, without the import
if TYPE_CHECKING:
    from moldau.testing.manual_clock import ManualClock
    from moldau.testing.memory_files import MemoryFiles
    from moldau.testing.memory_network import MemoryNetwork
    from moldau.testing.running_broker import RunningBroker, broker
    from moldau.testing.running_cluster import RunningCluster, cluster
    from moldau.testing.running_secured_broker import SecuredBroker, secured_broker
    from moldau.testing.simulated_cluster import SimulatedCluster
else:
    from moldau.lazy_names import load_on_demand

    __getattr__, __dir__ = load_on_demand(
        __name__,
        {
            "manual_clock": "ManualClock",
            "memory_files": "MemoryFiles",
            "memory_network": "MemoryNetwork",
            "running_broker": "RunningBroker broker",
            "running_cluster": "RunningCluster cluster",
            "running_secured_broker": "SecuredBroker secured_broker",
            "simulated_cluster": "SimulatedCluster",
        },
    )

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
