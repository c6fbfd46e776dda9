"""Transactions as the leader of a partition sees them, in whole brokers on virtual time.

The transaction coordinator is played by the test: it confirms, refuses or keeps silent, and sends
markers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from copy import copy
from typing import Any

import pytest

from broker.cluster_stage import Cluster, Machine, play
from broker.test_quotas_in_memory import limit
from moldau.broker.transaction_verifier import Question
from moldau.coordinators.groups.rules.share_group import ShareGroup
from moldau.errors import ErrorCode
from moldau.model import GROUP_OFFSETS_TOPIC, TopicPartition
from moldau.records.batch_header import walk_headers
from moldau.records.record_batch import build_batch
from moldau.simulation.manual_clock import wait_until_idle

PRODUCE, FETCH, LIST_OFFSETS, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 9, 10
DELETE_RECORDS = 21
WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT, DESCRIBE_PRODUCERS = 27, 28, 61
PRODUCER = 4711


class Coordinator:
    """Answers the questions of partition leaders; `gate` holds the answers back."""

    def __init__(self, *machines: Machine) -> None:
        self.code = ErrorCode.none
        self.questions: list[Question] = []
        self.gate: asyncio.Event | None = None
        for machine in machines:
            object.__setattr__(machine.services, "transaction_verifier", self)

    async def ask(self, question: Question) -> Mapping[TopicPartition, ErrorCode]:
        self.questions.append(question)
        if self.gate is not None:
            await self.gate.wait()
        return dict.fromkeys(question.partitions, self.code)


class Stage:
    """A topic, its leader, and what clients and coordinators say to it."""

    def __init__(self, cluster: Cluster, machine: Machine) -> None:
        self.cluster = cluster
        self.machine = machine
        self.coordinator = Coordinator(machine)
        self.ask = cluster.ask

    def aside(self) -> Stage:
        """For what goes on while something else is done."""
        aside = copy(self)
        aside.ask = self.cluster.exchange
        return aside

    async def produce(
        self,
        *values: bytes,
        sequence: int = 0,
        epoch: int = 0,
        version: int = 9,
        producer: int = PRODUCER,
        transactional: bool = True,
        partition: int = 0,
    ) -> ErrorCode:
        now_ms = self.cluster.clock.now_ms()
        batch = build_batch(
            [(now_ms, None, value, ()) for value in values],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        answer = await self.ask(
            self.machine,
            PRODUCE,
            version,
            transactional_id="t-1" if transactional else None,
            acks=-1,
            timeout=1000,
            topic_data=[
                {"name": "t", "partition_data": [{"index": partition, "records": bytes(batch)}]}
            ],
        )
        code: ErrorCode = answer.responses[0].partition_responses[0].error_code
        return code

    async def mark(
        self,
        *,
        commit: bool,
        epoch: int = 0,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        topic: str = "t",
        partition: int = 0,
    ) -> ErrorCode:
        answer = await self.ask(
            self.machine,
            WRITE_TXN_MARKERS,
            2,
            markers=[
                {
                    "producer_id": PRODUCER,
                    "producer_epoch": epoch,
                    "transaction_result": commit,
                    "topics": [{"name": topic, "partition_indexes": [partition]}],
                    "coordinator_epoch": coordinator_epoch,
                    "transaction_version": transaction_version,
                }
            ],
        )
        code: ErrorCode = answer.markers[0].topics[0].partitions[0].error_code
        return code

    async def delete_records(self, offset: int) -> ErrorCode:
        row = {"partition_index": 0, "offset": offset}
        answer = await self.ask(
            self.machine,
            DELETE_RECORDS,
            1,
            topics=[{"name": "t", "partitions": [row]}],
            timeout=1000,
        )
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    async def fetch(
        self, *, committed: bool = True, wait_ms: int = 0, min_bytes: int = 0, offset: int = 0
    ) -> Any:
        answer = await self.ask(
            self.machine,
            FETCH,
            11,
            replica_id=-1,
            max_wait=wait_ms,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            isolation_level=1 if committed else 0,
            session_id=0,
            session_epoch=-1,
            topics=[
                {
                    "topic": "t",
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "fetch_offset": offset,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
            ],
            forgotten_topics_data=[],
            rack_id="",
        )
        return answer.responses[0].partitions[0]

    async def latest(self, isolation_level: int) -> int:
        row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        answer = await self.ask(
            self.machine,
            LIST_OFFSETS,
            4,
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[{"name": "t", "partitions": [row]}],
        )
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    async def producer_state_of(self, producer_id: int) -> tuple[int, int]:
        """Coordinator epoch, and where the open transaction begins."""
        topics = [{"name": "t", "partition_indexes": [0]}]
        answer = await self.ask(self.machine, DESCRIBE_PRODUCERS, 0, topics=topics)
        found = {one.producer_id: one for one in answer.topics[0].partitions[0].active_producers}
        return found[producer_id].coordinator_epoch, found[producer_id].current_txn_start_offset

    async def commit_offset(
        self, offset: int, *, version: int = 3, epoch: int = 0, **said: object
    ) -> ErrorCode:
        row = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        answer = await self.ask(
            self.machine,
            TXN_OFFSET_COMMIT,
            version,
            transactional_id="t-1",
            group_id="g",
            producer_id=PRODUCER,
            producer_epoch=epoch,
            topics=[{"name": "t", "partitions": [row]}],
            **said,
        )
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    async def committed_offset(self, *, stable: bool = False) -> tuple[ErrorCode, int]:
        answer = await self.ask(
            self.machine,
            OFFSET_FETCH,
            7,
            group_id="g",
            topics=[{"name": "t", "partition_indexes": (0,)}],
            require_stable=stable,
        )
        assert answer.error_code is ErrorCode.none
        found = answer.topics[0].partitions[0]
        return found.error_code, found.committed_offset


async def on_one_broker(cluster: Cluster) -> Stage:
    (machine,) = await cluster.start(1)
    await cluster.create(machine, "t", [1], [1])
    return Stage(cluster, machine)


NONE = ErrorCode.none


# Reading


def test_a_quota_does_not_part_aborted_records_from_their_marker() -> None:
    """Some clients filter aborted records by a marker in the same answer only."""

    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        for sequence in range(3):
            assert await stage.produce(bytes(1_000), sequence=sequence) is NONE
        assert await stage.mark(commit=False) is NONE
        await limit(cluster, stage.machine, {"client_id": None}, consumer_byte_rate=1_000)
        found = await stage.fetch()
        headers = [header for _, header in walk_headers(found.records)]
        assert [header.is_control for header in headers] == [False, False, False, True]
        assert [(one.producer_id, one.first_offset) for one in found.aborted_transactions] == [
            (PRODUCER, 0)
        ]

    play(story)


@pytest.mark.parametrize("commit", [True, False])
def test_what_a_transaction_wrote_is_read_when_it_is_decided(commit: bool) -> None:
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"before", producer=5, transactional=False) is NONE
        assert await stage.produce(b"a", b"b") is NONE
        assert await stage.produce(b"after", producer=6, transactional=False) is NONE
        open_read = await stage.fetch()
        assert (open_read.last_stable_offset, open_read.high_watermark) == (1, 4)
        assert len(open_read.records) < len((await stage.fetch(committed=False)).records)
        assert (await stage.latest(1), await stage.latest(0)) == (1, 4)
        assert await stage.producer_state_of(PRODUCER) == (-1, 1)
        assert await stage.mark(commit=commit, coordinator_epoch=3) is NONE
        read = await stage.fetch()
        assert (read.last_stable_offset, read.high_watermark) == (5, 5)
        told = [(one.producer_id, one.first_offset) for one in read.aborted_transactions or ()]
        assert told == ([] if commit else [(PRODUCER, 1)])
        assert (await stage.latest(1), await stage.latest(0)) == (5, 5)
        assert await stage.producer_state_of(PRODUCER) == (3, -1)

    play(story)


def test_a_reader_of_decided_transactions_is_woken_by_a_marker_that_is_smaller_than_it_waits_for():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"x" * 2000) is NONE
        before = cluster.clock.monotonic()
        reading = asyncio.ensure_future(stage.aside().fetch(wait_ms=20_000, min_bytes=1000))
        await wait_until_idle()
        assert await stage.mark(commit=True) is NONE
        read = await cluster.during(reading)
        assert len(read.records) > 2000
        assert cluster.clock.monotonic() - before < 10

    play(story)


def test_an_open_transaction_survives_a_kill_and_is_ended_afterwards():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a") is NONE
        assert await stage.mark(commit=False) is NONE
        assert await stage.produce(b"b", sequence=1) is NONE
        await stage.machine.kill()
        await stage.machine.start()
        stage = Stage(cluster, stage.machine)
        await cluster.until(lambda: stage.machine.led("t")[0] == 1)
        read = await stage.fetch()
        assert read.last_stable_offset == 2
        assert [one.first_offset for one in read.aborted_transactions] == [0]
        assert await stage.produce(b"c", sequence=2) is NONE
        assert stage.coordinator.questions == []  # its transaction is open
        assert await stage.mark(commit=True) is NONE
        assert (await stage.fetch()).last_stable_offset == 5

    play(story)


@pytest.mark.parametrize("commit", [True, False])
def test_records_of_an_open_transaction_are_deleted_and_the_rest_waits_for_its_end(
    commit: bool,
) -> None:
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a") is NONE
        assert await stage.produce(b"b", sequence=1) is NONE
        assert await stage.produce(b"other", producer=5, transactional=False) is NONE
        assert await stage.delete_records(1) is NONE
        read = await stage.fetch(offset=1)
        assert (read.last_stable_offset, read.high_watermark) == (1, 3)
        assert await stage.mark(commit=commit) is NONE
        read = await stage.fetch(offset=1)
        assert (read.last_stable_offset, read.high_watermark) == (4, 4)
        told = [(one.producer_id, one.first_offset) for one in read.aborted_transactions or ()]
        assert told == ([] if commit else [(PRODUCER, 0)])

    play(story)


def test_a_transaction_of_which_nothing_is_left_goes_on_after_a_kill() -> None:
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a") is NONE
        assert await stage.delete_records(1) is NONE
        await stage.machine.kill()
        await stage.machine.start()
        stage = Stage(cluster, stage.machine)
        await cluster.until(lambda: stage.machine.led("t")[0] == 1)
        assert await stage.produce(b"b", sequence=1) is NONE
        end = (await stage.fetch(offset=1)).high_watermark
        assert (await stage.fetch(offset=1)).last_stable_offset < end
        assert await stage.mark(commit=True) is NONE
        assert (await stage.fetch(offset=1)).last_stable_offset == end + 1

    play(story)


# Verification


def test_only_the_first_batch_of_a_transaction_is_asked_about():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a") is NONE
        assert await stage.produce(b"b", sequence=1) is NONE
        await stage.mark(commit=True)
        assert await stage.produce(b"c", sequence=2) is NONE
        here = frozenset({TopicPartition("t", 0)})
        question = Question("t-1", PRODUCER, 0, here, adds=False)
        assert stage.coordinator.questions == [question, question]

    play(story)


def test_a_producer_of_version_2_has_its_partition_added():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a", version=12) is NONE
        assert [one.adds for one in stage.coordinator.questions] == [True]

    play(story)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.transaction_abortable, 10, ErrorCode.invalid_txn_state),
        (ErrorCode.transaction_abortable, 11, ErrorCode.transaction_abortable),
        (ErrorCode.producer_fenced, 12, ErrorCode.invalid_producer_epoch),
        (ErrorCode.invalid_producer_id_mapping, 9, ErrorCode.invalid_producer_id_mapping),
        (ErrorCode.concurrent_transactions, 12, ErrorCode.not_enough_replicas),
        (ErrorCode.not_coordinator, 9, ErrorCode.not_enough_replicas),
        (ErrorCode.network_exception, 9, ErrorCode.not_enough_replicas),
    ],
)
def test_what_the_coordinator_refuses_is_not_appended(said, version, told):
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        stage.coordinator.code = said
        assert await stage.produce(b"a", version=version) is told
        assert await stage.latest(0) == 0
        stage.coordinator.code = NONE
        assert await stage.produce(b"a", version=version) is NONE

    play(story)


def test_a_partition_that_is_named_twice_does_not_get_around_the_question():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        stage.coordinator.code = ErrorCode.invalid_producer_id_mapping
        now_ms = cluster.clock.now_ms()
        rows = [
            {
                "index": 0,
                "records": bytes(
                    build_batch(
                        [(now_ms, None, b"a", ())],
                        producer_id=producer,
                        producer_epoch=0,
                        base_sequence=0,
                        transactional=transactional,
                    )
                ),
            }
            for producer, transactional in ((PRODUCER, True), (5, False))
        ]
        answer = await stage.ask(
            stage.machine,
            PRODUCE,
            9,
            transactional_id="t-1",
            acks=-1,
            timeout=1000,
            topic_data=[{"name": "t", "partition_data": rows}],
        )
        told = [one.error_code for one in answer.responses[0].partition_responses]
        assert told == [ErrorCode.invalid_producer_id_mapping, ErrorCode.invalid_request]
        assert await stage.latest(0) == 0

    play(story)


def test_verification_can_be_switched_off():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a") is NONE
        assert stage.coordinator.questions == []

    play(story, transaction_partition_verification_enable="false")


def test_a_batch_that_is_confirmed_before_the_marker_is_not_appended_behind_it():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        gate = stage.coordinator.gate = asyncio.Event()
        late = asyncio.ensure_future(stage.aside().produce(b"late"))
        await cluster.until(lambda: bool(stage.coordinator.questions))
        assert await stage.mark(commit=False) is NONE
        gate.set()
        assert await cluster.during(late) is ErrorCode.invalid_txn_state
        assert (await stage.fetch()).last_stable_offset == 1  # the marker alone

    play(story)


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_may_begin_while_the_end_of_the_last_one_is_under_way(commit: bool) -> None:
    """Under version 2 a producer goes on as soon as the end is decided. The coordinator confirms
    the next transaction when the marker is written: which does not take the question away."""

    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a", version=12) is NONE
        gate = stage.coordinator.gate = asyncio.Event()
        early = asyncio.ensure_future(stage.aside().produce(b"b", epoch=1, version=12))
        await wait_until_idle()
        assert await stage.mark(commit=commit, epoch=1, transaction_version=2) is NONE
        gate.set()
        assert await cluster.during(early) is NONE
        assert await stage.mark(commit=True, epoch=2, transaction_version=2) is NONE
        assert (await stage.fetch()).last_stable_offset == 4

    play(story)


def test_a_late_batch_does_not_join_the_next_transaction():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        gate = stage.coordinator.gate = asyncio.Event()
        late = asyncio.ensure_future(stage.aside().produce(b"late", epoch=0, version=12))
        await cluster.until(lambda: bool(stage.coordinator.questions))
        assert await stage.mark(commit=False, epoch=1, transaction_version=2) is NONE
        stage.coordinator.gate = None
        assert await stage.produce(b"next", epoch=1, version=12) is NONE
        gate.set()
        assert await cluster.during(late) in (
            ErrorCode.invalid_txn_state,
            ErrorCode.invalid_producer_epoch,
        )
        assert await stage.mark(commit=True, epoch=2, transaction_version=2) is NONE
        read = await stage.fetch()
        assert read.last_stable_offset == 3
        assert b"late" not in bytes(read.records)

    play(story)


# Markers


def test_a_marker_that_comes_again_does_not_end_the_next_transaction():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a", version=12) is NONE
        first = {"commit": True, "epoch": 1, "transaction_version": 2}
        assert await stage.mark(**first) is NONE
        assert await stage.mark(**first) is NONE
        assert await stage.latest(0) == 2  # it is not written twice
        assert await stage.produce(b"b", epoch=1, version=12) is NONE
        assert await stage.mark(**first) is ErrorCode.invalid_producer_epoch
        assert (await stage.fetch()).last_stable_offset == 2

    play(story)


def test_a_coordinator_that_was_replaced_ends_nothing():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a") is NONE
        assert await stage.mark(commit=True, coordinator_epoch=7) is NONE
        assert await stage.produce(b"b", sequence=1) is NONE
        fenced = await stage.mark(commit=False, coordinator_epoch=6)
        assert fenced is ErrorCode.transaction_coordinator_fenced
        assert (await stage.fetch()).last_stable_offset == 2
        elsewhere = await stage.mark(commit=True, topic="nowhere")
        assert elsewhere is ErrorCode.unknown_topic_or_partition

    play(story)


def test_a_fenced_producer_writes_nothing_more():
    async def story(cluster: Cluster) -> None:
        stage = await on_one_broker(cluster)
        assert await stage.produce(b"a") is NONE
        assert await stage.mark(commit=False, epoch=1) is NONE
        assert await stage.produce(b"b", sequence=1) is ErrorCode.invalid_producer_epoch

    play(story, transaction_partition_verification_enable="false")


# Offsets of groups


async def with_groups(cluster: Cluster) -> Stage:
    stage = await on_one_broker(cluster)
    machine = stage.machine
    await cluster.ask(machine, FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
    await cluster.until(lambda: GROUP_OFFSETS_TOPIC in machine.image.topics)
    return stage


ONE_PARTITION = {"offsets_topic_num_partitions": "1"}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_offsets_of_a_transaction_become_the_groups_with_its_commit(commit, restarts):
    async def story(cluster: Cluster) -> None:
        stage = await with_groups(cluster)
        assert await stage.commit_offset(7) is NONE
        (group,) = stage.machine.services.groups.each_group()
        assert not isinstance(group, ShareGroup)
        (pending,) = group.pending_offsets.of_partition("t", 0)
        assert pending.topic_id == stage.machine.image.topics["t"].topic_id
        partitions = stage.coordinator.questions[0].partitions
        assert partitions == {TopicPartition(GROUP_OFFSETS_TOPIC, 0)}
        assert await stage.committed_offset() == (NONE, -1)
        assert await stage.committed_offset(stable=True) == (ErrorCode.unstable_offset_commit, -1)
        if restarts:
            await stage.machine.kill()
            await stage.machine.start()
            stage = Stage(cluster, stage.machine)
            await cluster.until(lambda: stage.machine.led(GROUP_OFFSETS_TOPIC)[0] == 1)
            unstable = (ErrorCode.unstable_offset_commit, -1)
            assert await stage.committed_offset(stable=True) == unstable
        assert await stage.mark(commit=commit, topic=GROUP_OFFSETS_TOPIC) is NONE
        assert await stage.committed_offset(stable=True) == (NONE, 7 if commit else -1)

    play(story, **ONE_PARTITION)


def test_offsets_that_come_after_the_marker_are_refused():
    async def story(cluster: Cluster) -> None:
        stage = await with_groups(cluster)
        gate = stage.coordinator.gate = asyncio.Event()
        late = asyncio.ensure_future(stage.aside().commit_offset(7))
        await cluster.until(lambda: bool(stage.coordinator.questions))
        assert await stage.mark(commit=False, topic=GROUP_OFFSETS_TOPIC) is NONE
        gate.set()
        assert await cluster.during(late) is ErrorCode.invalid_txn_state
        assert await stage.committed_offset(stable=True) == (NONE, -1)

    play(story, **ONE_PARTITION)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.transaction_abortable, 3, ErrorCode.invalid_txn_state),
        (ErrorCode.transaction_abortable, 5, ErrorCode.transaction_abortable),
        (ErrorCode.not_coordinator, 3, ErrorCode.coordinator_load_in_progress),
        (ErrorCode.not_coordinator, 1, ErrorCode.coordinator_not_available),
        (ErrorCode.producer_fenced, 3, ErrorCode.invalid_producer_epoch),
    ],
)
def test_offsets_whose_transaction_is_not_confirmed_are_refused(said, version, told):
    async def story(cluster: Cluster) -> None:
        stage = await with_groups(cluster)
        stage.coordinator.code = said
        assert await _commit_by(stage, version) is told
        stage.coordinator.code = NONE
        assert await _commit_by(stage, version) is NONE

    play(story, **ONE_PARTITION)


async def _commit_by(stage: Stage, version: int) -> ErrorCode:
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    if version >= 2:
        row["committed_leader_epoch"] = -1
    answer = await stage.cluster.ask(
        stage.machine,
        TXN_OFFSET_COMMIT,
        version,
        transactional_id="t-1",
        group_id="g",
        producer_id=PRODUCER,
        producer_epoch=0,
        topics=[{"name": "t", "partitions": [row]}],
    )
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def test_a_producer_commits_for_a_member_of_the_current_generation_only():
    async def story(cluster: Cluster) -> None:
        stage = await with_groups(cluster)
        said = {"member_id": "nobody", "generation_id": 3}
        assert await stage.commit_offset(7, **said) is ErrorCode.illegal_generation
        assert await stage.commit_offset(7) is NONE
        assert await stage.mark(commit=True, topic=GROUP_OFFSETS_TOPIC) is NONE
        assert await stage.commit_offset(8, **said) is ErrorCode.unknown_member_id

    play(story, **ONE_PARTITION)
