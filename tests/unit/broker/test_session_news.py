"""A session that looks at what has news answers what one that looks at everything would.

Two leaders with the same logs live through the same events and get the same requests. In the one,
partitions come to rest; in the other nothing ever does, so that each round looks at all of them.
Every answer, every high watermark and every proposal of an in-sync set has to be the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.broker.api import RequestContext
from moldau.broker.fetch import FetchSessions, SessionPartition
from moldau.broker.handlers import fetch
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import UnknownTopicError
from moldau.model import TopicPartition
from moldau.records.batch_header import walk_headers
from moldau.records.record_batch import build_batch
from moldau.replication.incoming_batches import Unpacker
from moldau.replication.partition import Partition
from moldau.storage.log_store import LogStore
from moldau.testing import ManualClock, MemoryFiles
from moldau.wire.apis import FETCH
from moldau.wire.fetch_exchange import (
    FetchAnswer,
    FetchSessionHandler,
    TopicKey,
    encode_fetch_request,
    parse_fetch_answer,
)
from moldau.wire.fetch_frame import FetchPartition, FetchRequest
from moldau.wire.headers import RequestHeader, read_response_header
from moldau.workers import InlineWorkers

VERSION = 16
TOPIC = TopicKey("clicks", UUID(int=42))
PARTITIONS = range(3)
FOLLOWERS = (2, 3)
CONSUMER = -1
LEADER = 1
BATCH_BYTES = len(build_batch([(1, None, b"x", ())]))
LAGS = [0.25 + 0.5 * steps for steps in range(12)]
"""No time that passes is one of them."""


class NothingRests(FetchSessions):
    """Sessions that look at everything in every round."""

    def rest(self, partition: SessionPartition, topic_partition: TopicPartition) -> None:
        pass


class Leader:
    """A broker that leads all partitions; a `PartitionObserver`."""

    def __init__(self, clock: ManualClock, sessions: type[FetchSessions]) -> None:
        self.clock = clock
        ids = count(1)
        self.sessions = sessions(lambda: 10, lambda: next(ids), self._note_idle)
        self.broker_epochs = {2: 12, 3: 13}
        self.partitions: dict[int, Partition] = {}
        self.states: dict[int, PartitionState] = {}
        self.looks = 0
        self.caught_up = 0

    async def open(self) -> None:
        options = BrokerOptions.resolve({})
        self.store = LogStore(
            [Path("/data")],
            files=MemoryFiles(self.clock),
            clock=self.clock,
            workers=InlineWorkers(),
            options=lambda: options,
            failures=SimpleNamespace(),
        )
        await self.store.open()
        for number in PARTITIONS:
            key = TopicPartition(TOPIC.name, number)
            log = await self.store.create_log(
                key, TOPIC.topic_id, TopicOptions.resolve({}, options)
            )
            self.partitions[number] = Partition(
                log,
                TOPIC.topic_id,
                broker_id=LEADER,
                clock=self.clock,
                unpacker=Unpacker(InlineWorkers(), self.clock),
                observer=self,
                broker_epoch_of=lambda broker: self.broker_epochs.get(broker, -1),
            )
            everybody = (LEADER, *FOLLOWERS)
            self.apply(
                number,
                PartitionState(
                    leader=LEADER, leader_epoch=0, isr=everybody, replicas=everybody, version=0
                ),
            )
        partitions = SimpleNamespace(require_leader=self._require, require_replica=self._require)
        known = SimpleNamespace(name=TOPIC.name, find_partition=self.states.get)
        self.services = SimpleNamespace(
            authorizer=None,
            clock=self.clock,
            fetch_sessions=self.sessions,
            image=SimpleNamespace(topics_by_id={TOPIC.topic_id: known}, brokers={}),
            options=SimpleNamespace(fetch_max_bytes=1 << 20, replica_selector_class=None),
            partitions=partitions,
            leader_quota=SimpleNamespace(holds_back=lambda *_: False, record=lambda *_: None),
        )

    def _require(self, topic: str, number: int) -> Partition:
        self.looks += 1
        if number not in self.partitions:
            raise UnknownTopicError("gone")
        return self.partitions[number]

    def _note_idle(self, key: TopicPartition, follower: int, until: float) -> None:
        self.partitions[key.partition].state.note_idle(follower, until)

    # What its partitions tell

    def on_append(self, key: TopicPartition, size_bytes: int) -> None:
        self.sessions.on_append(key, size_bytes)

    def on_replicable(self, key: TopicPartition, size_bytes: int) -> None:
        self.sessions.on_replicable(key, size_bytes)

    def on_commit(self, key: TopicPartition, high_watermark: int) -> None:
        self.sessions.on_commit(key)

    def on_change(self, key: TopicPartition) -> None:
        self.sessions.on_change(key)

    def on_catch_up(self, partition: Partition) -> None:
        self.caught_up += 1

    def on_suspicion(self, partition: Partition, offset: int) -> None:
        pass

    # What happens to it

    def apply(self, number: int, state: PartitionState) -> None:
        """As `Partitions` does."""
        self.states[number] = state
        if self.partitions[number].apply_state(state):
            self.on_change(TopicPartition(TOPIC.name, number))

    def change(self, number: int, *, epoch: int = 0, isr: tuple[int, ...]) -> None:
        former = self.states[number]
        state = PartitionState(
            leader=LEADER,
            leader_epoch=former.leader_epoch + epoch,
            isr=isr,
            replicas=former.replicas,
            version=former.version + 1,
        )
        self.apply(number, state)

    def register(self, follower: int, epoch: int) -> None:
        self.broker_epochs[follower] = epoch
        for number, partition in self.partitions.items():
            self.on_change(TopicPartition(TOPIC.name, number))
            partition.state.forget_follower(follower)

    def append(self, number: int) -> None:
        batch = memoryview(build_batch([(1, None, b"x", ())]))
        assert self.partitions[number].append_as_leader(batch, 1) is not None

    def answer(self, request: FetchRequest) -> FetchAnswer:
        body = memoryview(bytearray(encode_fetch_request(VERSION, request)))
        header = RequestHeader(FETCH.key, VERSION, 0, "test")
        context: Any = RequestContext(header, SimpleNamespace(), self.services)  # type: ignore[arg-type]
        chunks = fetch.handle_frame(body, 0, context)
        assert isinstance(chunks, list)
        parts = [chunk if isinstance(chunk, bytes) else chunk.read() for chunk in chunks]
        frame = memoryview(b"".join(parts))[4:]
        _, position = read_response_header(frame, FETCH.key, VERSION)
        return parse_fetch_answer(VERSION, frame, position)

    def shrinks(self, number: int) -> list[object]:
        """Who would leave the in-sync set, by how long it may lag: so does one see when each
        follower has been caught up."""
        partition, found = self.partitions[number], []
        for lag in LAGS:
            proposed = partition.propose_isr(lag)
            found.append(None if proposed is None else proposed[1].isr)
            if proposed is not None:
                partition.withdraw_isr(proposed[0])
        return found


class Reader:
    """A follower or a consumer, as far as it asks."""

    def __init__(self, replica_id: int, broker_epoch: int) -> None:
        self.replica_id = replica_id
        self.broker_epoch = broker_epoch
        self.session = FetchSessionHandler()
        self.offsets = dict.fromkeys(PARTITIONS, 0)
        self.starts = dict.fromkeys(PARTITIONS, 0)
        self.epochs = dict.fromkeys(PARTITIONS, 0)

    def request(self, wanted: frozenset[int], max_bytes: int) -> FetchRequest:
        self.session.want_only(
            {
                (TOPIC, number): FetchPartition(
                    number,
                    self.epochs[number],
                    self.offsets[number],
                    -1,
                    self.starts[number],
                    max_bytes,
                )
                for number in sorted(wanted)
            }
        )
        said = self.session.next_request()
        return FetchRequest(
            self.replica_id,
            self.broker_epoch,
            0,
            1,
            max_bytes,
            0,
            said.session_id,
            said.epoch,
            said.topics,
            said.forgotten,
            "",
            None,
        )

    def use(self, answer: FetchAnswer, epochs: dict[int, int]) -> None:
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code:
                    self.epochs[row.partition] = epochs[row.partition]
                    continue
                for _, header in walk_headers(row.records):
                    self.offsets[row.partition] = header.next_offset
                self.starts[row.partition] = row.log_start_offset
                self.offsets[row.partition] = max(self.offsets[row.partition], row.log_start_offset)


class Pair:
    """Both leaders, and whoever reads from them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.resting = Leader(self.clock, FetchSessions)
        self.restless = Leader(self.clock, NothingRests)
        self.readers = {2: Reader(2, 12), 3: Reader(3, 13), CONSUMER: Reader(CONSUMER, -1)}

    @property
    def both(self) -> tuple[Leader, Leader]:
        return self.resting, self.restless

    async def open(self) -> None:
        for leader in self.both:
            await leader.open()

    async def close(self) -> None:
        for leader in self.both:
            await leader.store.close()

    def round(self, reader_id: int, *, uses: bool, wanted: frozenset[int], max_bytes: int) -> None:
        reader = self.readers[reader_id]
        request = reader.request(wanted, max_bytes)
        ours, theirs = (leader.answer(request) for leader in self.both)
        assert _plain(ours) == _plain(theirs)
        if ours.error_code:
            reader.session.start_over(is_forgotten=True)
            return
        reader.session.answered(ours.session_id)
        if uses:
            epochs = {number: one.leader_epoch for number, one in self.resting.states.items()}
            reader.use(ours, epochs)

    def compare(self) -> None:
        assert self.resting.caught_up == self.restless.caught_up
        for number in PARTITIONS:
            ours, theirs = (leader.partitions[number] for leader in self.both)
            assert ours.high_watermark == theirs.high_watermark
            assert ours.low_watermark == theirs.low_watermark
            assert self.resting.shrinks(number) == self.restless.shrinks(number)


def _plain(answer: FetchAnswer) -> list[object]:
    rows = [
        (*row._replace(records=memoryview(b"")), bytes(row.records))
        for topic in answer.topics
        for row in topic.partitions
    ]
    return [answer.error_code, answer.session_id, *rows]


def rest(pair: Pair) -> None:
    """Everybody asks until there is nothing left to say."""
    for _ in range(3):
        for reader in (*FOLLOWERS, CONSUMER):
            happen(pair, Event("round", reader=reader))
    pair.resting.looks = pair.restless.looks = 0


class Event(NamedTuple):
    """Something that happens, and all that may be said of it."""

    what: str
    number: int = 0
    reader: int = 2
    is_whole: bool = True  # everything is wanted, and there is room for it
    is_used: bool = True


OFTEN = ["round"] * 8 + ["append"] * 5 + ["pass"] * 3
SELDOM = ["delete", "elect", "let go", "take in", "restart", "register"]
events = st.builds(
    Event,
    what=st.sampled_from(OFTEN + SELDOM),
    number=st.sampled_from(PARTITIONS),
    reader=st.sampled_from((*FOLLOWERS, CONSUMER)),
    is_whole=st.sampled_from((True, True, True, False)),
    is_used=st.sampled_from((True, True, True, False)),
)


def happen(pair: Pair, event: Event) -> float:
    """Play one event; the seconds that pass."""
    what, number, reader, is_whole, is_used = event
    others = frozenset(PARTITIONS) - {number}
    follower = max(reader, FOLLOWERS[0])
    if what == "round":
        wanted = frozenset(PARTITIONS) if is_whole or is_used else others
        max_bytes = 1 << 20 if is_whole else BATCH_BYTES
        pair.round(reader, uses=is_used, wanted=wanted, max_bytes=max_bytes)
    elif what == "pass":
        return 0.5 + number / 2
    elif what == "restart":  # its fetches do not count before the leader hears of it
        pair.readers[follower].broker_epoch += 10
    for leader in pair.both:
        isr = leader.states[number].isr
        match what:
            case "append":
                leader.append(number)
            case "delete":
                leader.partitions[number].delete_records(-1)
            case "elect":
                leader.change(number, epoch=1, isr=isr)
            case "let go":
                leader.change(number, isr=tuple(one for one in isr if one != follower))
            case "take in":
                leader.change(number, isr=(LEADER, *FOLLOWERS))
            case "register":
                leader.register(follower, pair.readers[follower].broker_epoch)
    return 0.0


def run(story: Sequence[Event]) -> None:
    async def play() -> None:
        pair = Pair()
        await pair.open()
        rest(pair)
        for event in story:
            seconds = happen(pair, event)
            if seconds:
                await pair.clock.advance(seconds)
            pair.compare()
        for number in PARTITIONS:  # until now they may have been at their ends: who was, and when?
            for leader in pair.both:
                leader.append(number)
        pair.compare()
        await pair.close()

    asyncio.run(play())


@settings(max_examples=150, deadline=None)
@given(st.lists(events, min_size=10, max_size=40))
def test_a_round_that_looks_at_news_answers_what_one_that_looks_at_everything_does(
    story: list[Event],
) -> None:
    run(story)


APPEND, PASS, ASK = Event("append"), Event("pass"), Event("round")
OTHER_ASKS, CONSUMER_ASKS = Event("round", reader=3), Event("round", reader=CONSUMER)
COMMIT = [APPEND, ASK, OTHER_ASKS, ASK, OTHER_ASKS]
FULL_ANSWER = Event("round", is_whole=False)
DROP = Event("round", is_whole=False, is_used=False)


@pytest.mark.parametrize(
    "story",
    [
        pytest.param([APPEND, ASK], id="records"),
        pytest.param([*COMMIT, CONSUMER_ASKS, ASK, OTHER_ASKS], id="high-watermark"),
        pytest.param([Event("elect"), ASK, CONSUMER_ASKS], id="election"),
        pytest.param(
            [*COMMIT, *[ASK, OTHER_ASKS, CONSUMER_ASKS] * 2, Event("delete"), ASK, CONSUMER_ASKS],
            id="log-start",
        ),
        pytest.param([PASS, ASK, PASS, APPEND], id="a-long-rest"),
        pytest.param([PASS, ASK, PASS, DROP, PASS, APPEND], id="dropped"),
        pytest.param([Event("restart"), ASK, PASS, ASK, APPEND], id="another-broker-epoch"),
        pytest.param([PASS, ASK, Event("register"), PASS, ASK], id="registered-anew"),
        pytest.param([Event("let go"), ASK, ASK, ASK], id="out-of-sync"),
        pytest.param([PASS, ASK, Event("let go"), Event("take in")], id="out-and-in-again"),
        pytest.param(
            [Event("append", number=1), APPEND, *[FULL_ANSWER] * 3, APPEND, FULL_ANSWER], id="turns"
        ),
    ],
)
def test_what_ends_a_rest(story: list[Event]) -> None:
    run(story)


# By hand


def at_rest() -> Pair:
    async def run() -> Pair:
        pair = Pair()
        await pair.open()
        rest(pair)
        return pair

    return asyncio.run(run())


def test_a_round_without_news_looks_at_nothing() -> None:
    pair = at_rest()
    for reader in (*FOLLOWERS, CONSUMER):
        happen(pair, Event("round", reader=reader))
    assert pair.resting.looks == 0
    assert pair.restless.looks > 0


def test_a_round_looks_at_what_moved_and_at_nothing_else() -> None:
    pair = at_rest()
    for leader in pair.both:
        leader.append(1)
    happen(pair, Event("round"))
    assert pair.resting.looks == 1


def test_a_follower_at_rest_is_caught_up_until_it_asked_last() -> None:
    """An hour without records, and one that is not copied at once: nobody has fallen behind."""
    pair = at_rest()

    async def run() -> None:
        for _ in range(7200):
            await pair.clock.advance(0.5)
            pair.resting.answer(pair.readers[2].request(frozenset(PARTITIONS), 1 << 20))
            pair.readers[2].session.answered(1)

    asyncio.run(run())
    pair.resting.append(0)
    assert pair.resting.shrinks(0)[0] == (1, 2)  # the other one has not asked for an hour


def test_a_follower_that_drops_a_partition_does_not_ask_for_it_any_more() -> None:
    pair = at_rest()

    async def run() -> None:
        for _ in range(4):
            await pair.clock.advance(0.5)
            for reader in FOLLOWERS:
                pair.round(reader, uses=True, wanted=frozenset({0, 1}), max_bytes=1 << 20)

    asyncio.run(run())
    for number in (0, 2):
        for leader in pair.both:
            leader.append(number)
    assert pair.resting.shrinks(0)[0] is None
    assert pair.resting.shrinks(2)[0] == (1,)
    pair.compare()


def test_a_session_that_ends_is_watched_no_longer() -> None:
    pair = at_rest()
    assert pair.resting.sessions.watched == 9
    for reader in (*FOLLOWERS, CONSUMER):
        pair.resting.sessions.close(pair.readers[reader].session.id)
    assert pair.resting.sessions.watched == 0
