"""Elections and moves of partitions, as clients ask for them. A shell, for the handlers.

Answers on the controller only, under its term; on other brokers `NotControllerError` tells clients
to ask the controller.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from moldau.cluster.cluster_admin import kafka_errors
from moldau.cluster.controllership import Controllership
from moldau.cluster.elections import Elections, Outcomes
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.reassignments import Reassignments, Targets
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.cluster.rules.reassignment import is_moving
from moldau.model import TopicPartition


class LeadershipAdmin:
    """Safe to call from many tasks of one loop at once."""

    def __init__(
        self,
        controllership: Controllership,
        publisher: MetadataPublisher,
        elections: Elections,
        reassignments: Reassignments,
    ) -> None:
        self._controllership = controllership
        self._publisher = publisher
        self._elections = elections
        self._reassignments = reassignments

    async def elect_leaders(
        self, wanted: Collection[TopicPartition] | None, *, unclean: bool = False
    ) -> Outcomes:
        """Preferred leaders, or any, for these partitions or for all that need it (None)."""
        with kafka_errors():
            term = self._controllership.require_term()
            if unclean:
                return await self._elections.elect_unclean(term, wanted)
            return await self._elections.prefer(term, wanted)

    async def alter_reassignments(
        self, targets: Targets, *, may_change_factor: bool = True
    ) -> Outcomes:
        """Begin, redirect or cancel moves."""
        with kafka_errors():
            term = self._controllership.require_term()
            return await self._reassignments.alter(
                term, targets, may_change_factor=may_change_factor
            )

    def list_reassignments(
        self, wanted: Collection[TopicPartition] | None
    ) -> Mapping[TopicPartition, PartitionState]:
        """Those of these partitions, or of all, that are on their way."""
        self._controllership.require_term()
        return {
            TopicPartition(topic.name, number): state
            for topic in self._publisher.image.topics.values()
            for number, state in enumerate(topic.partitions)
            if is_moving(state) and (wanted is None or TopicPartition(topic.name, number) in wanted)
        }
