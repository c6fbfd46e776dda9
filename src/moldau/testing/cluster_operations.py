"""Does the operations of a plan in a simulated cluster. A shell.

To add operations: write a module with functions that take an `Operator`, put them into an
`OperationFamily`, and name it in `FAMILIES`. Each family has its own random source, so the plans
of the others stay as they are. What an operation promises or takes away (a topic that is deleted,
records before an offset) is told to `cluster_history`, which knows what must not be; what the
coordination store says is heard of by `cluster_observer` without being told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from moldau.testing.cluster_branches import BRANCHES
from moldau.testing.cluster_moves import MOVES
from moldau.testing.cluster_topics import TOPICS
from moldau.testing.operation_plan import PlannedOperation, draw_operations, has_operations
from moldau.testing.simulated_operator import OperatedCluster, OperationFamily, Operator

FAMILIES: Final[tuple[OperationFamily, ...]] = (MOVES, TOPICS, BRANCHES)
"""All families, each in a module of its own."""


class ClusterOperations:
    """Owned by the story's task."""

    def __init__(
        self, cluster: OperatedCluster, families: Sequence[OperationFamily] | None = None
    ) -> None:
        """`families` that the seed may choose from; all without them, none with an empty list."""
        self._cluster = cluster
        self._is_forced = families is not None  # a story's own: every seed has them
        self._families = {each.name: each for each in (FAMILIES if families is None else families)}
        self._operators: list[Operator] = []
        self._tasks: list[asyncio.Task[None]] = []

    def draw(self, start_seconds: float, end_seconds: float) -> list[PlannedOperation]:
        streams = self._cluster.world.streams
        if not has_operations(streams.stream("operations")) and not self._is_forced:
            return []
        plan: list[PlannedOperation] = []
        for family in self._families.values():
            plan += draw_operations(
                streams.stream(f"operations {family.name}"),
                family.name,
                family.weights,
                share=1.0 if self._is_forced else family.share,
                fewest=family.fewest,
                most=family.most,
                start_seconds=start_seconds,
                end_seconds=end_seconds,
            )
        return sorted(plan, key=lambda each: (each.at_seconds, each.family))

    def begin(self, planned: PlannedOperation) -> None:
        """Let an operator do it, beside everything else."""
        _, operation = self._families[planned.family].kinds[planned.kind]
        operator = Operator(
            f"operator-{len(self._tasks)}",
            self._cluster,
            Random(f"{planned.kind}/{planned.number}"),  # noqa: S311 not a secret
        )
        self._cluster.world.log.note(f"operation: {planned}")
        self._operators.append(operator)
        self._tasks.append(self._cluster.world.story.spawn(operation(operator)))

    async def wait_until_done(self) -> None:
        """Return when each of them has been done or given up."""
        for task in self._tasks:
            await task

    def forget(self) -> None:
        """At the end of the run, whatever became of it."""
        self._operators.clear()
        self._tasks.clear()
