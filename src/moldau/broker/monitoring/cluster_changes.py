"""Counts elections and changes of in-sync sets as images tell of them, and remembers them.

Each broker hears of every change in the cluster. It counts what it is responsible for, as Kafka's
brokers do: in-sync sets of what it leads; elections while it is the controller. It remembers all.
A shell without a task.
"""

from __future__ import annotations

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.cluster.rules.partition_changes import (
    PartitionChange,
    describe_isr,
    describe_leader,
    find_changes,
)
from moldau.metrics.figures import BrokerFigures
from moldau.metrics.history import EventKind, History
from moldau.model import NO_BROKER, BrokerId


class ClusterChanges:
    """A subscriber of `cluster.metadata_publisher`."""

    def __init__(self, broker_id: BrokerId, figures: BrokerFigures, history: History) -> None:
        self._broker_id = broker_id
        self._figures = figures
        self._history = history

    def on_image(
        self, former: MetadataImage, image: MetadataImage, changed_topics: frozenset[str]
    ) -> None:
        for change in find_changes(former, image, changed_topics):
            self._count(change, is_controller=image.controller_id == self._broker_id)
            self._remember(change)
        for topic in changed_topics:
            if topic in former.topics and topic not in image.topics:
                self._figures.traffics.forget(topic)
        if former.brokers.keys() != image.brokers.keys():
            self._note_brokers(former, image)
        if former.controller_id != image.controller_id != NO_BROKER:
            message = f"broker {image.controller_id} is the controller"
            self._history.note(EventKind.BROKER, str(image.controller_id), message)

    def _count(self, change: PartitionChange, *, is_controller: bool) -> None:
        figures = self._figures
        if change.state.leader == self._broker_id:
            figures.isr_shrinks += bool(change.left)
            figures.isr_expands += bool(change.joined)
        if is_controller and change.is_election:
            figures.elections += 1
            figures.unclean_elections += change.is_unclean

    def _remember(self, change: PartitionChange) -> None:
        subject = str(change.topic_partition)
        told = ((EventKind.ELECTION, describe_leader), (EventKind.ISR, describe_isr))
        for kind, describe in told:
            message = describe(change)
            if message is not None:
                self._history.note(
                    kind,
                    subject,
                    message,
                    leader=change.state.leader,
                    leader_epoch=change.state.leader_epoch,
                    isr=list(change.state.isr),
                )

    def _note_brokers(self, former: MetadataImage, image: MetadataImage) -> None:
        for broker in sorted(image.brokers.keys() - former.brokers.keys()):
            self._history.note(EventKind.BROKER, str(broker), f"broker {broker} has come")
        for broker in sorted(former.brokers.keys() - image.brokers.keys()):
            self._history.note(EventKind.BROKER, str(broker), f"broker {broker} has gone")
