"""Somebody who operates a simulated cluster: an admin client over the wire, and what it sees.

Every operation of a plan (`operation_plan`) is done by an `Operator` of its own. It asks the
controller, asks again where nobody answered or the answer says "later", and gives up after a
while: then nobody knows whether it was done, as with any operator's tool.

A family of operations is a module of its own with one `OperationFamily`; `cluster_operations` has
the list of them.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from moldau.errors import ErrorCode
from moldau.model import TopicPartition
from moldau.testing.cluster_history import ClusterHistory
from moldau.testing.cluster_observer import ClusterObserver
from moldau.testing.simulated_clients import WireClient
from moldau.testing.simulated_machine import SimulatedMachine, World
from moldau.testing.simulated_producers import AnyProducer
from moldau.testing.simulated_wire import SimulatedWire, UnansweredError

TIMEOUT_SECONDS: Final = 6.0
"""So long is something asked for again and again."""

LATER: Final = frozenset(
    code.value
    for code in (
        ErrorCode.not_controller,
        ErrorCode.request_timed_out,
        ErrorCode.leader_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.coordinator_not_available,
        ErrorCode.unknown_server_error,
    )
)
"""Errors that another attempt may mend."""


class OperatedCluster(Protocol):
    """What an operation sees of the cluster; `SimulatedCluster` is one."""

    world: World
    observer: ClusterObserver
    history: ClusterHistory
    broker_ids: tuple[int, ...]
    min_in_sync: int
    partitions: list[TopicPartition]  # those that clients work on

    @property
    def machines(self) -> Mapping[int, SimulatedMachine]: ...

    def had_session(self, broker_id: int, since: float, until: float) -> bool: ...

    def had_enough_in_sync(self, partition: TopicPartition, since: float) -> bool: ...

    def make_producer(
        self, name: str, partition: TopicPartition, kind: type[AnyProducer]
    ) -> AnyProducer: ...

    def open_wire(self, name: str) -> SimulatedWire:
        """The connections of one more client."""
        ...

    def serve(self, partition: TopicPartition) -> None:
        """Let clients produce to a partition and read it from now on, if they do not yet."""
        ...


class Operator(WireClient):
    """Does one operation. `random` decides all that it chooses."""

    def __init__(self, name: str, cluster: OperatedCluster, random: Random) -> None:
        super().__init__(name, cluster.open_wire(name), cluster.history, random)
        self.cluster = cluster
        self.random = random
        self.wire = self._wire
        self.is_in_doubt = False  # an attempt had no definite answer: it may be done even later

    def note(self, text: str) -> None:
        self.cluster.world.log.note(f"operation {text}")

    async def sleep(self, seconds: float) -> None:
        await self._wire.clock.sleep(seconds)

    async def ask_controller(
        self,
        api: tuple[int, int],
        values: dict[str, object],
        codes_of: Callable[[object], Sequence[ErrorCode]],
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> int | None:
        """The first error code of a definite answer, 0 for none; None when it was given up.

        `codes_of` finds the error codes of an answer. What was given up may have been done.
        """
        end = self._wire.clock.monotonic() + timeout_seconds
        while self._wire.clock.monotonic() < end and not self.is_stopping:
            if self._wire.controller_id >= 0:
                try:
                    answer = await self._wire.call(self._wire.controller_id, *api, values)
                except UnansweredError:
                    self.is_in_doubt = True
                else:
                    codes = [code.value for code in codes_of(answer) if code.value]
                    if not LATER.intersection(codes):
                        return codes[0] if codes else 0
                    self.is_in_doubt = True
            await self._refresh(self.cluster.partitions[0].topic)
        return None


Operation = Callable[[Operator], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationFamily:
    """Operations that belong together, and how often they come."""

    name: str
    share: float  # of the seeds with operations
    fewest: int
    most: int
    kinds: Mapping[str, tuple[int, Operation]]  # by what a schedule prints: weight, what to do

    @property
    def weights(self) -> dict[str, int]:
        return {kind: weight for kind, (weight, _) in self.kinds.items()}
