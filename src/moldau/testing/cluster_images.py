"""Compares what brokers believe of partitions with what the coordination store has ever held.

A partition's replicas are in its topic's node and its state in one of its own. This observer of the
store knows all pairs of the two that were in force at some moment: the replicas change only with
the state, under the next leader epoch (CTL-3), and every image of a broker shows such a pair
(META-4).
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

from moldau.cluster.rules.metadata_image import NO_NODE, TopicState
from moldau.coordination.tree import Change, Entry
from moldau.model import TopicPartition, format_uuid
from moldau.testing.cluster_history import ClusterHistory

_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")


class _State(NamedTuple):
    version: int
    leader_epoch: int


class _Topic:
    """One life of a topic: one of the same name that is made later has another id."""

    def __init__(self, topic_id: str | None) -> None:
        self.topic_id = topic_id
        self.version = 0  # of its node
        self.replicas: dict[int, tuple[int, ...]] = {}
        self.states: dict[int, _State] = {}
        self.pairs: dict[tuple[int, int], tuple[int, ...]] = {}  # by partition and version


class ClusterImages:
    """One for each run; an observer of `CoordinationService`, and of the brokers' images."""

    def __init__(self, history: ClusterHistory) -> None:
        self._history = history
        self._topics: dict[str, _Topic] = {}

    # What the store holds

    def __call__(self, changes: list[Change]) -> None:
        """One transaction: what is compared is what holds after all of it."""
        touched: dict[tuple[str, int], _State | None] = {}  # with the state before
        for change in changes:
            if match := _TOPIC.fullmatch(change.path):
                self._on_topic(match[1], change.after, touched)
            elif match := _STATE.fullmatch(change.path):
                topic, number = self._topics.get(match[1]), int(match[2])
                if topic is not None and change.after is not None:
                    touched.setdefault((match[1], number), topic.states.get(number))
                    node = change.after.node
                    if not node.data.endswith(b"}"):
                        continue  # somebody damaged it
                    epoch = json.loads(node.data)["leader_epoch"]
                    topic.states[number] = _State(node.version, epoch)
        for (name, number), former in touched.items():
            self._note_pair(name, number, former)

    def _on_topic(
        self, name: str, after: Entry | None, touched: dict[tuple[str, int], _State | None]
    ) -> None:
        if after is None:
            self._topics.pop(name, None)
            return
        if not after.node.data.endswith(b"}"):
            return  # somebody damaged it
        fields = json.loads(after.node.data)
        topic_id = fields.get("topic_id")
        topic = self._topics.get(name)
        if topic is None or topic.topic_id not in (None, topic_id):
            topic = self._topics[name] = _Topic(topic_id)
        topic.topic_id = topic_id
        topic.version = after.node.version
        for key, brokers in fields["partitions"].items():
            number, replicas = int(key), tuple(brokers)
            if topic.replicas.get(number) != replicas:
                touched.setdefault((name, number), topic.states.get(number))
            topic.replicas[number] = replicas

    def _note_pair(self, name: str, number: int, former: _State | None) -> None:
        topic = self._topics.get(name)
        if topic is None or number not in topic.states or number not in topic.replicas:
            return
        state, replicas = topic.states[number], topic.replicas[number]
        before = None if former is None else topic.pairs.get((number, former.version))
        if (
            former is not None
            and before is not None
            and set(before) != set(replicas)
            and state.leader_epoch <= former.leader_epoch
        ):
            self._history.report(
                "CTL-3",
                f"{TopicPartition(name, number)} goes from {before} to {replicas} in epoch "
                f"{state.leader_epoch}",
            )
        topic.pairs[number, state.version] = replicas

    # What brokers believe

    def check_topic(self, broker: str, topic: TopicState) -> None:
        """A broker has published this topic."""
        known = self._topics.get(topic.name)
        if known is None or known.topic_id != format_uuid(topic.topic_id):
            return  # the broker has yet to hear that it is gone
        if topic.version > known.version:
            self._history.report(
                "META-4",
                f"{broker} knows version {topic.version} of {topic.name}, of {known.version}",
            )
        for number, state in enumerate(topic.partitions):
            held = known.pairs.get((number, state.version))
            if state.version == NO_NODE or held in (None, state.replicas):
                continue
            self._history.report(
                "META-4",
                f"{broker} pairs version {state.version} of the state of {topic.name}-{number} "
                f"with {state.replicas}; it was in force with {held}",
            )
