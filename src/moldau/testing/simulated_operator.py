"""Somebody who operates a simulated cluster: a client that asks the controller, and what it sees.

Every operation of a plan (`operation_plan`) is done by an `Operator` of its own. It asks the
controller, asks again where nobody answered or the answer says "later", and gives up after a
while: then nobody knows whether it was done, as with any operator's tool.

A family of operations is a module of its own with one `OperationFamily`; `cluster_operations` has
the list of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from moldau.errors import ClientError, ErrorCode, KafkaError
from moldau.model import TopicPartition
from moldau.testing.cluster_history import ClusterHistory
from moldau.testing.cluster_observer import ClusterObserver
from moldau.testing.simulated_clients import Client
from moldau.testing.simulated_machine import SimulatedMachine, World
from moldau.testing.simulated_workload import Workload
from moldau.wire.apis import Api

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
    workload: Workload

    @property
    def machines(self) -> Mapping[int, SimulatedMachine]: ...


class Operator(Client):
    """Does one operation. `random` decides all that it chooses."""

    def __init__(self, name: str, cluster: OperatedCluster, random: Random) -> None:
        super().__init__(name, cluster.history, random)
        self.cluster = cluster
        self.random = random
        self._client = cluster.workload.open_client(name)
        self.is_in_doubt = False  # an attempt had no definite answer: it may be done even later

    def note(self, text: str) -> None:
        self.cluster.world.log.note(f"operation {text}")

    async def sleep(self, seconds: float) -> None:
        await self._client.clock.sleep(seconds)

    async def ask_controller(
        self,
        api: tuple[Api, int],
        values: dict[str, object],
        codes_of: Callable[[object], Sequence[ErrorCode]],
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> int | None:
        """The first error code of a definite answer, 0 for none; None when it was given up.

        `codes_of` finds the error codes of an answer. What was given up may have been done.
        """
        client, (asked, version) = self._client, api
        end = client.clock.monotonic() + timeout_seconds
        while client.clock.monotonic() < end and not self.is_stopping:
            try:
                controller = await client.connect_to_controller()
                answer = await controller.call(asked, values, version=version)
            except (KafkaError, ClientError):
                self.is_in_doubt = True
            else:
                codes = [code.value for code in codes_of(answer) if code.value]
                if not LATER.intersection(codes):
                    return codes[0] if codes else 0
                self.is_in_doubt = True
            await self.sleep(self.random.uniform(0.02, 0.1))
            with contextlib.suppress(KafkaError, ClientError):
                await client.metadata.refresh(())
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
