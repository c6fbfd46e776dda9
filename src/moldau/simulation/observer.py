"""Follows a simulated cluster from the coordination service: who leads, who is in sync, who lost.

It hears of every change at the moment of it, so it knows what no broker can know. From this follow
three things: whether a fault that destroys data is within the fault model (somebody in sync keeps
everything); that no replica that lost data is in an in-sync set when its broker registers again
(REP-6); and that everything that was promised is in the log of everybody in sync (REP-3), or
eligible (ELR-1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from moldau.cluster.rules.metadata_image import NO_NODE, TopicState
from moldau.cluster.znodes import DELETE_TOPICS, DELETED_TOPICS
from moldau.coordination.tree import Change, Entry
from moldau.coordinators.groups.rules.records import OffsetRecord, decode
from moldau.coordinators.runtime.internal_topic import partition_for
from moldau.errors import MoldauError
from moldau.model import GROUP_OFFSETS_TOPIC, TopicPartition, format_uuid
from moldau.records.record_batch import records_of
from moldau.simulation.history import ClusterHistory, StoredBatch
from moldau.simulation.machine import EventLog

_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
_BROKER: Final = re.compile(r"/brokers/ids/(\d+)")
_TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")
_DELETED: Final = re.compile(rf"{DELETED_TOPICS}/.+")
_MARK: Final = re.compile(rf"{DELETE_TOPICS}/(.+)")
_CONTROLLER: Final = "/controller"
_SPARES_THE_TROUBLED: Final = 2
"""With so many that have to be in sync, one that leaves the set keeps its right to lead."""


class ObservedState(NamedTuple):
    leader: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()  # came back with a hole, and were in sync or eligible before


class ClusterObserver:
    """One for each run; an observer of `CoordinationService`."""

    def __init__(
        self,
        history: ClusterHistory,
        log: EventLog,
        find_log_end: Callable[[int, TopicPartition], int],
        is_running: Callable[[int], bool],
    ) -> None:
        """`find_log_end` looks into the log of a broker, whether it runs or not."""
        self.states: dict[TopicPartition, ObservedState] = {}
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self.moving: set[TopicPartition] = set()  # that are being reassigned
        self.registered: set[int] = set()
        self.controller: int | None = None
        self._ids: dict[str, str] = {}  # of the topics
        self._marked: set[str] = set()  # topics that are being deleted
        self._deleted: set[str] = set()  # records of deletions: no other topic was deleted (DEL-1)
        self.min_in_sync = 1
        self._lost: dict[int, set[TopicPartition]] = {}
        """Brokers that lost data and have not registered since, and what there was to lose."""
        self._hidden: set[int] = set()  # brokers without their disk, not registered since
        self._failing: set[int] = set()  # brokers whose disk fails sooner or later
        # By broker: logs of which something was taken, by the rule, until it has registered.
        self._holed: dict[int, dict[TopicPartition, str]] = {}
        self._history = history
        self._log = log
        self._find_log_end = find_log_end
        self._is_running = is_running
        self._now = history.now
        self._sizes: dict[TopicPartition, list[tuple[float, int]]] = {}  # of in-sync sets, by time
        self._restored: set[TopicPartition] = set()  # their states are of no broker's making
        history.on_promise = self.check_in_sync

    def __call__(self, changes: list[Change]) -> None:
        self._deleted.update(
            change.path for change in changes if change.after and _DELETED.fullmatch(change.path)
        )
        for change in changes:
            before = None if change.before is None else change.before.node
            after = None if change.after is None else change.after.node
            if before == after:
                continue
            self._on_change(change.path, None if after is None else after.data)

    def _on_change(self, path: str, data: bytes | None) -> None:
        if match := _STATE.fullmatch(path):
            self._on_state(TopicPartition(match[1], int(match[2])), data)
        elif match := _BROKER.fullmatch(path):
            self._on_broker(int(match[1]), is_there=data is not None)
        elif match := _TOPIC.fullmatch(path):
            self._on_topic(match[1], data)
        elif (match := _MARK.fullmatch(path)) and data:
            self._log.note(f"{match[1]} is deleted when all its brokers are there")
            self._marked.add(match[1])
            self._drop_topic(match[1])
            self._history.forget_topic(match[1])
        elif path == _CONTROLLER:
            self.controller = None if data is None else json.loads(data)["brokerid"]
            self._log.note(f"controller {self.controller}")

    def _on_state(self, partition: TopicPartition, data: bytes | None) -> None:
        if data is None or partition.topic in self._marked:
            self.states.pop(partition, None)
            return
        if not data.endswith(b"}"):
            self._log.note(f"{partition}: its state makes no sense")
            return
        fields = json.loads(data)
        state = ObservedState(
            fields["leader"],
            fields["leader_epoch"],
            tuple(fields["isr"]),
            tuple(fields.get("eligible_leader_replicas", ())),
            tuple(fields.get("last_known_elr", ())),
        )
        if partition not in self._restored:
            self._check_only_copy(partition, state)
        self.states[partition] = state
        if self._history.is_muted:
            self._restored.add(partition)
        else:
            self._restored.discard(partition)
        eligible = f" elr {state.eligible}" if state.eligible else ""
        self._sizes.setdefault(partition, []).append((self._now(), len(state.in_sync)))
        self._log.note(
            f"{partition}: leader {state.leader} epoch {state.leader_epoch} isr {state.in_sync}"
            + eligible
        )
        self._history.see_state(partition, state.leader, state.leader_epoch)
        self.check_in_sync(partition)

    def _check_only_copy(self, partition: TopicPartition, state: ObservedState) -> None:
        """Who is the last one to have everything does not give it up for want of its disk."""
        former = self.states.get(partition)
        had_all = set() if former is None else {*former.in_sync, *former.eligible}
        if len(had_all) == 1 and had_all <= self._hidden and not (*state.in_sync, *state.eligible):
            self._history.report(
                "DEL-3", f"broker {had_all} gives {partition} up, without the disk it is on"
            )

    def check_in_sync(self, partition: TopicPartition) -> None:
        """Everybody in sync or eligible has what was promised, unless the machine has just lost
        it. Of a state that was put back in the place of a later one nobody says so: until a broker
        has written another, what is answered was promised under the later one."""
        state = None if partition in self._restored else self.states.get(partition)
        for broker_id in () if state is None else (*state.in_sync, *state.eligible):
            if broker_id not in self._lost and partition not in self._holed.get(broker_id, ()):
                end_offset = self._find_log_end(broker_id, partition)
                self._history.see_in_sync(partition, broker_id, end_offset)

    def those_who_kept(self, brokers: Collection[int]) -> list[int]:
        """Those of some brokers that have not just lost their data."""
        return [each for each in brokers if each not in self._lost and each not in self._holed]

    def most_in_sync(self, partition: TopicPartition, since: float) -> int:
        """The size of the largest in-sync set that was in force at any time since then."""
        most = 0
        for at, size in reversed(self._sizes.get(partition, ())):
            most = max(most, size)
            if at <= since:
                break
        return most

    def _on_topic(self, topic: str, data: bytes | None) -> None:
        if data is None:
            self._forget_topic(topic)
            return
        if not data.endswith(b"}"):
            self._log.note(f"{topic}: its assignment makes no sense")
            return
        fields = json.loads(data)
        self._ids[topic] = fields.get("topic_id", "")
        on_their_way = {*fields.get("adding_replicas", ()), *fields.get("removing_replicas", ())}
        for number, replicas in fields["partitions"].items():
            partition = TopicPartition(topic, int(number))
            if self.replicas.get(partition) != tuple(replicas):
                self._log.note(f"{partition}: replicas {replicas}")
            self.replicas[partition] = tuple(replicas)
            if number in on_their_way:
                self.moving.add(partition)
            else:
                self.moving.discard(partition)

    def _forget_topic(self, topic: str) -> None:
        """Its node is gone. If it was deleted, whatever was promised of it is void."""
        self._marked.discard(topic)
        self._drop_topic(topic)
        if f"{DELETED_TOPICS}/{self._ids.pop(topic, None)}" in self._deleted:
            self._history.forget_topic(topic)
        else:
            self._log.note(f"{topic} has vanished")

    def _drop_topic(self, topic: str) -> None:
        for partition in [each for each in self.replicas if each.topic == topic]:
            del self.replicas[partition]
            self.states.pop(partition, None)
            self.moving.discard(partition)
            for holed in self._holed.values():
                holed.pop(partition, None)
            for lost in self._lost.values():
                lost.discard(partition)

    def _on_broker(self, broker_id: int, *, is_there: bool) -> None:
        self._log.note(f"broker {broker_id} {'is registered' if is_there else 'is gone'}")
        if not is_there:
            self.registered.discard(broker_id)
            return
        self.registered.add(broker_id)
        if self._is_running(broker_id):
            for partition, rule in self._holed.pop(broker_id, {}).items():
                state = self.states.get(partition)
                if state is not None and broker_id in (*state.in_sync, *state.eligible):
                    message = f"broker {broker_id} has lost files of {partition}, and says nothing"
                    self._history.report(rule, message)
        # What registers while the machine is off was on its way before the loss.
        if broker_id in self._lost and self._is_running(broker_id):
            lost = self._lost.pop(broker_id)
            self._hidden.discard(broker_id)
            for partition in sorted(lost & self.states.keys()):
                state = self.states[partition]
                has_all = broker_id in (*state.in_sync, *state.eligible)
                if has_all and len(self.replicas.get(partition, ())) > 1:
                    self._history.report(
                        "REP-6",
                        f"broker {broker_id} lost data and registers as in sync or eligible in "
                        f"{partition}",
                    )

    def find_topic_id(self, topic: str) -> str | None:
        return self._ids.get(topic)

    # The fault model

    def may_lose_data(self, broker_id: int, troubled: Collection[int]) -> bool:
        """Whether another replica is in sync or eligible wherever this one is, and keeps its data.

        One whose disk fails hands over to others, so it is not well. The `troubled` are, where
        more than one has to be in sync: whoever leaves then stays eligible. And who is just being
        moved away keeps its data for nobody.
        """
        others = self._lost.keys() | self._failing | self._holed.keys() | {broker_id}
        if self.min_in_sync < _SPARES_THE_TROUBLED:
            others |= set(troubled)
        return all(
            {*state.in_sync, *state.eligible} - others - self._may_leave(partition)
            for partition, state in self.states.items()
            if broker_id in (*state.in_sync, *state.eligible)
        )

    def _may_leave(self, partition: TopicPartition) -> frozenset[int]:
        return self._history.moves.may_leave(partition, self.replicas.get(partition, ()))

    def may_trouble(self, troubled: Collection[int]) -> bool:
        """Whether these may lose their sessions: not where another one in sync has lost data and
        has not said so yet, and nobody who is well would be left to lead. Where more than one has
        to be in sync it does not matter: see `may_lose_data`."""
        unwell = self._lost.keys() | self._holed.keys()
        return self.min_in_sync >= _SPARES_THE_TROUBLED or all(
            set(state.in_sync) - unwell - self._failing - set(troubled)
            for state in self.states.values()
            if unwell & set(state.in_sync)
        )

    def last_known(self, partition: TopicPartition) -> tuple[int, ...]:
        """The replicas that are known to have everything, or were before they lost something."""
        state = self.states[partition]
        return tuple(
            each
            for each in self.replicas.get(partition, ())
            if each in (*state.in_sync, *state.eligible, *state.last_known)
        )

    def lose_data(self, broker_id: int) -> None:
        self._lost.setdefault(broker_id, set()).update(self.states)

    def lose_log(self, broker_id: int, partition: TopicPartition, rule: str) -> None:
        """Something was taken of a log; the broker that has it says so when it comes."""
        self._holed.setdefault(broker_id, {})[partition] = rule

    def hide_data(self, broker_id: int) -> bool:
        """A broker is without its disk, as if it had lost its data; False if it has anyway."""
        if broker_id in self._lost.keys() | self._failing | self._holed.keys():
            return False
        self.lose_data(broker_id)
        self._hidden.add(broker_id)
        return True

    def show_data(self, broker_id: int) -> bool:
        """The disk is there again; False if the broker has registered without it meanwhile."""
        was_idle = broker_id in self._hidden
        if was_idle:
            self._hidden.discard(broker_id)
            self._lost.pop(broker_id, None)
        return was_idle

    def is_kept(self) -> bool:
        """Whether somebody in sync or eligible has kept its data everywhere: no partition is to be
        recovered from what others have."""
        unwell = self._lost.keys() | self._holed.keys()
        return all({*state.in_sync, *state.eligible} - unwell for state in self.states.values())

    def fail_disk(self, broker_id: int) -> None:
        self._failing.add(broker_id)

    def mend_disks(self) -> list[int]:
        """Returns the brokers whose disks failed."""
        failed = sorted(self._failing)
        self._failing.clear()
        return failed

    # Being whole

    def find_flaw(self, brokers: Sequence[int]) -> str | None:
        """Why the cluster is not whole yet; None when it is."""
        missing = set(brokers) - self.registered
        if missing:
            return f"brokers {sorted(missing)} are not registered"
        if self.controller is None:
            return "there is no controller"
        for partition, replicas in sorted(self.replicas.items()):
            state = self.states.get(partition)
            if state is None or state.leader < 0:
                return f"{partition} has no leader"
            if partition in self.moving:
                return f"{partition} is still on its way to some of {replicas}"
            if set(state.in_sync) != set(replicas):
                return f"{partition} is in sync on {state.in_sync} only, of {replicas}"
        return None


def describe_states(states: Mapping[TopicPartition, ObservedState]) -> str:
    return "; ".join(f"{partition} {tuple(state)}" for partition, state in sorted(states.items()))


# Compares what brokers believe of partitions with what the coordination store has ever held.
#
# A partition's replicas are in its topic's node and its state in one of its own. This observer of
# the store knows all pairs of the two that were in force at some moment: the replicas change only
# with the state, under the next leader epoch (CTL-3), and every image of a broker shows such a pair
# (META-4).


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


# Whether an offset of a group that a client was told of is there to stay. A rule over logs.
#
# A commit that was acknowledged, and an offset that was shown, is in the log of everybody in sync
# with the group's partition of the offsets topic (GRP-8), at that moment and ever after.


class CommittedOffsets:
    """Looks up what clients were told. `read_log` reads from the disk of a broker."""

    def __init__(
        self,
        history: ClusterHistory,
        observer: ClusterObserver,
        read_log: Callable[[int, TopicPartition], Sequence[StoredBatch]],
    ) -> None:
        self._history = history
        self._observer = observer
        self._read_log = read_log

    def require(self, group: str, partition: TopicPartition, offset: int, told: str) -> None:
        """A client was `told` of this offset, or that it is committed."""
        count = sum(1 for each in self._observer.states if each.topic == GROUP_OFFSETS_TOPIC)
        if offset < 0 or not count:
            return
        place = TopicPartition(GROUP_OFFSETS_TOPIC, partition_for(group, count))
        state = self._observer.states.get(place)
        well = [] if state is None else self._observer.those_who_kept(state.in_sync)
        if not well:
            return
        end_offset = find_commit(self._read_log(well[0], place), group, partition, offset)
        if end_offset is None:
            self._history.report(
                "GRP-8",
                f"offset {offset} of {group} in {partition} was {told}, and is not in the log "
                f"of broker {well[0]}, which is in sync in {place}",
            )
        else:
            self._history.promise(place, end_offset)  # so all who are in sync have to have it


def find_commit(
    batches: Sequence[StoredBatch], group: str, partition: TopicPartition, offset: int
) -> int | None:
    """The end of the first batch with a commit of this offset, or of a later one: they grow."""
    end_offset: int | None = None
    name = group.encode()
    for batch in reversed(batches):
        if name not in batch.content:  # offsets are not compressed here: quick, and mostly enough
            continue
        committed = _committed_in(batch, group, partition)
        if committed is None:
            continue
        if committed < offset:
            break
        end_offset = batch.end_offset
    return end_offset


@lru_cache(maxsize=4096)
def _committed_in(batch: StoredBatch, group: str, partition: TopicPartition) -> int | None:
    for record in records_of(batch.content):
        try:
            found = decode(record.key, record.value)
        except MoldauError:
            continue
        if (
            isinstance(found, OffsetRecord)
            and (found.group_id, found.topic, found.partition) == (group, *partition)
            and found.committed is not None
        ):
            return found.committed.offset
    return None
