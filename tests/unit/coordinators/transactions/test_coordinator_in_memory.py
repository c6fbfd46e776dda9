"""Transactional requests to a whole broker in memory, in bytes, on a virtual clock."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.broker.handlers import write_txn_markers
from moldau.coordinators.transactions.coordinator import COMPLETION_WAIT_SECONDS
from moldau.errors import ErrorCode
from moldau.model import TRANSACTION_STATE_TOPIC
from unit.coordinators.groups.group_world import Client, World, run

FIND_COORDINATOR, INIT, ADD, ADD_OFFSETS, END = 10, 22, 24, 25, 26
DESCRIBE, LIST, API_VERSIONS = 65, 66, 18
TIMEOUT_MS = 60_000


class Transactional:
    """A producer that speaks in bytes."""

    def __init__(self, client: Client, name: str = "orders") -> None:
        self.client = client
        self.name = name
        self.identity: dict[str, int] = {}

    async def init(self, version: int = 4, timeout_ms: int = TIMEOUT_MS, **values: object) -> Any:
        known: dict[str, object] = {"producer_id": -1, "producer_epoch": -1} if version >= 3 else {}
        answer = await self.client.ask(
            INIT,
            version,
            transactional_id=self.name,
            transaction_timeout=timeout_ms,
            **{**known, **values},
        )
        if answer.error_code is ErrorCode.none:
            self.identity = {
                "producer_id": answer.producer_id,
                "producer_epoch": answer.producer_epoch,
            }
        return answer

    async def add(self, topic: str = "t", partitions: tuple[int, ...] = (0,)) -> ErrorCode:
        answer = await self.client.ask(
            ADD,
            3,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.identity["producer_id"],
            v3_and_below_producer_epoch=self.identity["producer_epoch"],
            v3_and_below_topics=[{"name": topic, "partitions": partitions}],
        )
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        return rows[-1].partition_error_code

    async def ask_as_leader(
        self, version: int, *, verify_only: bool, topic: str = "t"
    ) -> ErrorCode:
        row = {
            "transactional_id": self.name,
            **self.identity,
            "verify_only": verify_only,
            "topics": [{"name": topic, "partitions": [0]}],
        }
        answer = await self.client.ask(ADD, version, transactions=[row])
        (result,) = answer.results_by_transaction
        return result.topic_results[0].results_by_partition[0].partition_error_code

    async def end(self, committed: bool = True, version: int = 3) -> Any:
        return await self.client.ask(
            END, version, transactional_id=self.name, **self.identity, committed=committed
        )

    async def describe(self) -> Any:
        answer = await self.client.ask(DESCRIBE, 0, transactional_ids=[self.name])
        return answer.transaction_states[0]


async def begin(world: World) -> tuple[Any, Transactional]:
    broker = await world.start()
    client = await world.connect()
    await world.create(client, "t")
    producer = Transactional(client)
    await client.ask(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[producer.name])
    return broker, producer


def test_a_transaction_from_its_beginning_to_its_end() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        assert (await producer.init()).producer_epoch == 0
        assert (await producer.describe()).transaction_state == "Empty"
        assert await producer.add() is ErrorCode.none
        described = await producer.describe()
        assert described.transaction_state == "Ongoing"
        assert described.topics[0].topic == "t"
        assert (await producer.end()).error_code is ErrorCode.none
        assert (await producer.describe()).transaction_state == "CompleteCommit"  # at once
        assert (await producer.end()).error_code is ErrorCode.none  # it comes again
        assert (await producer.end(committed=False)).error_code is ErrorCode.invalid_txn_state
        topic = broker.services.image.topics[TRANSACTION_STATE_TOPIC]
        assert topic.configs["cleanup.policy"] == "compact"
        await broker.stop()

    run(story)


def test_a_transaction_that_is_taken_can_be_ended_however_many_partitions_it_has() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await world.create(producer.client, "many", 200)
        await producer.init()
        count = 0
        while await producer.add("many", (count,)) is ErrorCode.none:
            count += 1
        assert 20 < count < 200
        described = await producer.describe()
        assert (described.transaction_state, len(described.topics[0].partitions)) == (
            "Ongoing",
            count,
        )
        assert (await producer.end(version=5)).error_code is ErrorCode.none
        await world.clock.advance(0.1)
        assert (await producer.describe()).transaction_state == "CompleteCommit"
        await broker.stop()

    run(story, message_max_bytes="600")


def test_offsets_of_a_group_are_a_part_of_the_transaction() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        answer = await producer.client.ask(
            ADD_OFFSETS, 3, transactional_id=producer.name, **producer.identity, group_id="g"
        )
        assert answer.error_code is ErrorCode.none
        described = await producer.describe()
        assert [one.topic for one in described.topics] == ["__consumer_offsets"]
        await broker.stop()

    run(story)


def test_the_second_producer_fences_the_first_and_aborts_what_it_left_open() -> None:
    async def story(world: World) -> None:
        broker, zombie = await begin(world)
        await zombie.init()
        await zombie.add()
        producer = Transactional(await world.connect())
        answer = await producer.init()
        while answer.error_code is ErrorCode.concurrent_transactions:
            await world.clock.advance(0.05)
            answer = await producer.init()
        assert answer.producer_epoch == zombie.identity["producer_epoch"] + 2
        assert await zombie.add() is ErrorCode.producer_fenced
        assert (await zombie.end()).error_code is ErrorCode.producer_fenced
        assert (await zombie.end(version=1)).error_code is ErrorCode.invalid_producer_epoch
        assert await producer.add() is ErrorCode.none
        await broker.stop()

    run(story)


def test_version_2_raises_the_epoch_with_every_end_and_knows_a_repetition() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init(version=5)
        assert await producer.ask_as_leader(5, verify_only=False) is ErrorCode.none
        ended = await producer.end(version=5)
        assert (ended.error_code, ended.producer_epoch) == (ErrorCode.none, 1)
        await world.clock.advance(0.1)
        again = await producer.end(version=5)
        assert (again.error_code, again.producer_epoch) == (ErrorCode.none, 1)
        # What was sent before the end, and comes after it, finds no transaction to join.
        assert await producer.ask_as_leader(5, verify_only=False) is ErrorCode.producer_fenced
        producer.identity["producer_epoch"] = 1
        nothing = await producer.end(committed=False, version=5)
        assert (nothing.error_code, nothing.producer_epoch) == (ErrorCode.none, 2)
        await broker.stop()

    run(story)


def test_leaders_hear_whether_a_partition_belongs_to_the_open_transaction() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        abortable = ErrorCode.transaction_abortable
        assert await producer.ask_as_leader(4, verify_only=True) is abortable
        await producer.add()
        assert await producer.ask_as_leader(4, verify_only=True) is ErrorCode.none
        producer.identity["producer_epoch"] += 1
        fenced = ErrorCode.producer_fenced
        assert await producer.ask_as_leader(4, verify_only=True) is fenced
        producer.identity["producer_id"] += 1
        unknown = ErrorCode.invalid_producer_id_mapping
        assert await producer.ask_as_leader(4, verify_only=True) is unknown
        await broker.stop()

    run(story)


def test_none_of_the_partitions_is_added_when_one_is_unknown() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        assert await producer.add(partitions=(0, 7)) is ErrorCode.unknown_topic_or_partition
        assert (await producer.describe()).transaction_state == "Empty"
        await broker.stop()

    run(story)


def test_a_transaction_whose_time_is_over_is_aborted_and_its_producer_fenced() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init(timeout_ms=5_000)
        await producer.add()
        await world.clock.advance(4)
        assert (await producer.describe()).transaction_state == "Ongoing"
        await world.clock.advance(12)
        assert (await producer.describe()).transaction_state == "CompleteAbort"
        assert (await producer.end()).error_code is ErrorCode.producer_fenced
        await broker.stop()

    run(story)


def test_a_clock_that_is_set_back_keeps_no_transaction_open() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init(timeout_ms=5_000)
        await producer.add()
        world.broker_clock.skew_ms = -3_600_000
        await world.clock.advance(4)
        assert (await producer.describe()).transaction_state == "Ongoing"
        await world.clock.advance(30)
        assert (await producer.describe()).transaction_state == "CompleteAbort"
        await broker.stop()

    run(story)


def test_time_outs_are_bounded() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        too_long = await producer.init(timeout_ms=16 * 60_000)
        assert too_long.error_code is ErrorCode.invalid_transaction_timeout
        assert (await producer.init(timeout_ms=0)).error_code is too_long.error_code
        await broker.stop()

    run(story)


def test_a_decision_is_carried_out_by_the_next_coordinator() -> None:
    """The broker dies between the decision and the markers."""

    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        await producer.add()
        for shard in broker.services.transactions:
            shard._send = lambda order: None  # the markers are on their way when it dies
        ended = await world.clock.run_until_done(producer.end())
        assert ended.error_code is ErrorCode.none
        assert (await producer.describe()).transaction_state == "PrepareCommit"
        refused = await world.clock.run_until_done(producer.add())
        assert refused is ErrorCode.concurrent_transactions
        await world.crash(broker)
        broker = await world.start()
        await world.clock.advance(1)
        producer.client = await world.connect()
        assert (await producer.describe()).transaction_state == "CompleteCommit"
        await broker.stop()

    run(story)


def test_requests_that_have_stopped_waiting_for_markers_leave_nothing_behind() -> None:
    """A client asks again and again while a broker that needs its marker is away."""

    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        await producer.add()
        shards = list(broker.services.transactions)
        for shard in shards:
            shard._send = lambda order: None  # the markers are not written
        await world.clock.run_until_done(producer.end())
        for _ in range(5):
            refused = await world.clock.run_until_done(producer.add())
            assert refused is ErrorCode.concurrent_transactions
        assert not [one for shard in shards for one in shard._watchers.values() if one]
        await broker.stop()

    run(story)


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        await world.clock.advance(70)
        assert (await producer.describe()).error_code is ErrorCode.transactional_id_not_found
        await broker.stop()

    run(
        story,
        transactional_id_expiration_ms="60000",
        transaction_remove_expired_transaction_cleanup_interval_ms="1000",
    )


def test_transactional_ids_are_listed_by_state_and_pattern() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        await producer.add()
        other = Transactional(producer.client, "payments")
        await other.init()
        filters: dict[str, Any] = {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": None,
        }

        async def listed(**values: object) -> Any:
            return await producer.client.ask(LIST, 2, **{**filters, **values})

        async def names(**values: object) -> list[str]:
            answer = await listed(**values)
            return sorted(one.transactional_id for one in answer.transaction_states)

        assert await names() == ["orders", "payments"]
        assert await names(state_filters=["Ongoing"]) == ["orders"]
        assert await names(transactional_id_pattern="pay.*") == ["payments"]
        assert await names(duration_filter=1000) == []
        answer = await listed(state_filters=["Nonsense"])
        assert answer.unknown_state_filters == ("Nonsense",)
        answer = await listed(transactional_id_pattern="(")
        assert answer.error_code is ErrorCode.invalid_regular_expression
        await broker.stop()

    run(story)


# Two phases (KIP-939)

TWO_PHASES = {"enable2_pc": True, "keep_prepared_txn": False}


def test_two_phases_have_to_be_allowed() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        refused = await producer.init(version=6, **TWO_PHASES)
        assert refused.error_code is ErrorCode.transactional_id_authorization_failed
        await broker.stop()

    run(story)


def test_a_prepared_transaction_waits_and_another_process_completes_it() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init(version=6, **TWO_PHASES)
        assert await producer.ask_as_leader(5, verify_only=False) is ErrorCode.none
        await world.clock.advance(20 * 60)
        other = Transactional(await world.connect())
        kept = await other.init(version=6, enable2_pc=True, keep_prepared_txn=True)
        assert kept.error_code is ErrorCode.none
        assert kept.ongoing_txn_producer_id == producer.identity["producer_id"]
        assert kept.ongoing_txn_producer_epoch == producer.identity["producer_epoch"]
        producer.client = other.client
        assert (await producer.end(version=5)).error_code is ErrorCode.producer_fenced
        refused = await other.ask_as_leader(5, verify_only=False)
        assert refused is ErrorCode.invalid_txn_state  # it can only be completed
        assert (await other.end(version=5)).error_code is ErrorCode.none
        await world.clock.advance(1)
        assert (await other.describe()).transaction_state == "CompleteCommit"
        await broker.stop()

    run(story, transaction_two_phase_commit_enable="true")


def test_who_knows_its_id_and_epoch_completes_it_without_initialising() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init(version=6, **TWO_PHASES)
        await producer.ask_as_leader(5, verify_only=False)
        await world.crash(broker)
        broker = await world.start()
        await world.clock.advance(1)
        producer.client = await world.connect()
        for _ in range(2):  # a decision can be repeated
            assert (await producer.end(version=5)).error_code is ErrorCode.none
            await world.clock.advance(1)
        opposite = await producer.end(version=5, committed=False)
        assert opposite.error_code is ErrorCode.invalid_txn_state
        await broker.stop()

    run(story, transaction_two_phase_commit_enable="true")


def test_transactions_of_one_request_do_not_wait_for_each_other() -> None:
    async def story(world: World) -> None:
        broker, first = await begin(world)
        client = first.client
        ended = [Transactional(client, f"ended-{number}") for number in range(5)]
        for one in ended:
            await one.init()
            await one.add()
        for shard in broker.services.transactions:
            shard._send = lambda order: None  # the markers are on their way
        for one in ended:
            answer = await world.clock.run_until_done(one.end())
            assert answer.error_code is ErrorCode.none
        rows = [
            {
                "transactional_id": one.name,
                **one.identity,
                "verify_only": False,
                "topics": [{"name": "t", "partitions": [0]}],
            }
            for one in ended
        ]
        before = world.clock.monotonic()
        answer = await world.clock.run_until_done(client.ask(ADD, 5, transactions=rows))
        codes = {
            one.topic_results[0].results_by_partition[0].partition_error_code
            for one in answer.results_by_transaction
        }
        assert codes == {ErrorCode.concurrent_transactions}
        assert world.clock.monotonic() - before < 2 * COMPLETION_WAIT_SECONDS
        await broker.stop()

    run(story)


def test_a_failure_that_nobody_foresaw_does_not_leave_a_transaction_without_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write = write_txn_markers.write
    failures = iter([RuntimeError("a bug")])

    async def fail_once(*arguments: Any) -> dict[str, object]:
        for failure in failures:
            raise failure
        return await write(*arguments)

    monkeypatch.setattr(write_txn_markers, "write", fail_once)

    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        await producer.add()
        ended = await world.clock.run_until_done(producer.end())
        assert ended.error_code is ErrorCode.none
        await world.clock.advance(1)
        assert (await producer.describe()).transaction_state == "CompleteCommit"
        await broker.stop()

    run(story)
    assert "a bug" in caplog.text


async def _listed(client: Client, **wanted: object) -> tuple[ErrorCode, list[str]]:
    values = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1}
    values |= {"transactional_id_pattern": None, **wanted}
    answer = await client.ask(LIST, 2, **values)
    return answer.error_code, [one.transactional_id for one in answer.transaction_states]


def test_ids_that_go_to_another_broker_while_ids_are_listed_are_left_out() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        broker.services.transactions.require_shard(producer.name).close()
        assert await _listed(producer.client) == (ErrorCode.none, [])
        await broker.stop()

    run(story)


def test_a_pattern_of_transactional_ids_cannot_hold_up_the_broker() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        producer.name = "a" * 60
        await producer.init()
        client = producer.client
        assert await _listed(client, transactional_id_pattern="a+") == (
            ErrorCode.none,
            [producer.name],
        )
        # Python's own expressions would try 2**60 ways.
        assert await _listed(client, transactional_id_pattern="(a+)+b") == (ErrorCode.none, [])
        refused, _ = await _listed(client, transactional_id_pattern="(")
        assert refused is ErrorCode.invalid_regular_expression
        await broker.stop()

    run(story)


def test_what_has_ended_is_not_listed_as_open_for_long() -> None:
    async def story(world: World) -> None:
        broker, producer = await begin(world)
        await producer.init()
        await producer.add()
        await world.clock.advance(5)
        assert (await _listed(producer.client, duration_filter=1000))[1] == [producer.name]
        await producer.end()
        await world.clock.advance(5)
        assert (await _listed(producer.client, duration_filter=1000))[1] == []
        assert (await _listed(producer.client))[1] == [producer.name]
        await broker.stop()

    run(story)


def test_clients_hear_of_the_features_in_force() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        answer = await client.ask(
            API_VERSIONS, 4, client_software_name="test", client_software_version="1"
        )
        assert [(one.name, one.max_version_level) for one in answer.finalized_features] == [
            ("group.version", 1),
            ("share.version", 1),
            ("streams.version", 1),
            ("transaction.version", 2),
        ]
        await broker.stop()

    run(story)
