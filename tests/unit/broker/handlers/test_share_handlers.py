"""ShareFetch and ShareAcknowledge by hand: sessions, records, errors, and what is on the wire."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any, cast
from uuid import UUID

import pytest
from kio.index import load_request_schema

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.api import RequestContext
from moldau.broker.handlers import (
    alter_client_quotas,
    alter_share_group_offsets,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
)
from moldau.broker.throttling import make_throttle
from moldau.client.admin.values import ConfigChange
from moldau.coordinators.shares.share_session import MemberKey
from moldau.errors import ErrorCode, InvalidConfigError
from moldau.model import ANONYMOUS
from moldau.records.batch_header import walk_headers
from moldau.records.record_batch import records_of
from moldau.wire.headers import RequestHeader
from moldau.wire.messages import encode_body, parse_response
from moldau.wire.shape import fit

GROUP = "workers"
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class Connection:
    """What is known of a client."""

    listener_name = "PLAINTEXT"
    security_protocol = "PLAINTEXT"
    peer_host = "10.0.0.1"
    principal = ANONYMOUS


class Member:
    """A member of the share group at one connection."""

    def __init__(self, bench: HandlerBench, name: str = "ann") -> None:
        self.bench = bench
        self.name = name
        self.epoch = 0
        self.connection = Connection()
        self.is_charged = False

    async def join(self) -> None:
        """Until it has the partitions: then their state is there."""
        values = {
            "group_id": GROUP,
            "member_id": self.name,
            "member_epoch": 0,
            "rack_id": None,
            "subscribed_topic_names": ["clicks"],
        }
        answer = await self._send(share_group_heartbeat, 1, values)
        for _ in range(50):
            assert answer.error_code is ErrorCode.none, answer
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            await self.bench.cluster.clock.advance(0.2)
            values |= {"member_epoch": answer.member_epoch, "subscribed_topic_names": None}
            answer = await self._send(share_group_heartbeat, 1, values)
        raise AssertionError(f"no assignment: {answer}")

    async def fetch(
        self,
        *partitions: int,
        acks: dict[int, list[tuple[int, int, list[int]]]] | None = None,
        version: int = 2,
        **others: Any,
    ) -> Any:
        acks = acks or {}
        named = {*partitions, *acks}
        if self.epoch == 0 and not named and "topics" not in others:
            named = {0}
        values: dict[str, Any] = {
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": self._topics(named, acks),
            "forgotten_topics_data": [],
            **self._common(others),
        }
        if version >= 2:
            values = {"share_acquire_mode": 0, "is_renew_ack": False, **values}
        return await self._send(share_fetch, version, values)

    async def say(
        self,
        acks: dict[int, list[tuple[int, int, list[int]]]],
        version: int = 2,
        **others: Any,
    ) -> Any:
        values = {"topics": self._topics(set(acks), acks), **self._common(others)}
        if version >= 2:
            values = {"is_renew_ack": False, **values}
        return await self._send(share_acknowledge, version, values)

    def _common(self, others: dict[str, Any]) -> dict[str, Any]:
        epoch = others.pop("epoch", self.epoch)
        if epoch == self.epoch:
            self.epoch += 1
        return {
            "group_id": GROUP,
            "member_id": self.name,
            "share_session_epoch": epoch,
            **others,
        }

    def _topics(self, named: set[int], acks: dict[int, Any]) -> list[dict[str, Any]]:
        if not named:
            return []
        rows = [
            {
                "partition_index": index,
                "acknowledgement_batches": [
                    {"first_offset": first, "last_offset": last, "acknowledge_types": types}
                    for first, last, types in acks.get(index, ())
                ],
            }
            for index in sorted(named)
        ]
        return [
            {"topic_id": self.bench.services.image.topics["clicks"].topic_id, "partitions": rows}
        ]

    async def _send(self, handler: ModuleType, version: int, values: dict[str, Any]) -> Any:
        api = handler.API
        header = RequestHeader(api.key, version, 9, "test")
        services, connection = self.bench.services, cast("Any", self.connection)
        charge = make_throttle(header, 0, connection, services) if self.is_charged else None
        context = RequestContext(header, connection, services, throttle=charge)
        request = fit(load_request_schema(api.key, version), values)
        if not api.by_hand:
            return await self.bench.call_as(handler, version, request, context)
        answer = handler.handle_frame(memoryview(encode_body(request)), 0, context)
        if inspect.isawaitable(answer):
            answer = await self.bench.cluster.during(answer)
        whole = b"".join(one if isinstance(one, bytes) else one.read() for one in answer)
        assert int.from_bytes(whole[:4], "big") == len(whole) - 4
        return parse_response(api.key, version, memoryview(whole)[4:])[1]


async def earliest(bench: HandlerBench, **settings: str) -> None:
    named = {"share.auto.offset.reset": "earliest"}
    named |= {f"share.{name.replace('_', '.')}": value for name, value in settings.items()}
    changes = [ConfigChange(name=name, value=value) for name, value in named.items()]
    await bench.cluster.during(
        bench.services.admin.alter_group_configs(GROUP, changes, validate_only=False)
    )


def found(answer: Any, index: int = 0) -> Any:
    assert answer.error_code is ErrorCode.none, answer
    (topic,) = answer.responses
    return next(one for one in topic.partitions if one.partition_index == index)


def ranges(answer: Any, index: int = 0) -> list[tuple[int, int, int]]:
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for partition in topic.partitions
        if partition.partition_index == index
        for one in partition.acquired_records
    ]


async def taker(bench: HandlerBench, name: str = "ann", **settings: str) -> Member:
    """A member with a session, whose partitions are loaded."""
    await earliest(bench, **settings)
    member = Member(bench, name)
    await member.join()
    await member.fetch(0, 1)
    await bench.cluster.clock.advance(1)
    return member


@pytest.mark.parametrize("version", [1, 2])
def test_a_member_gets_records_and_says_what_became_of_them(version: int) -> None:
    async def story(bench: HandlerBench) -> None:
        member = await taker(bench)
        bench.append("clicks", b"a", b"b", b"c")
        answer = await member.fetch(version=version)
        assert ranges(answer) == [(0, 2, 1)]
        assert answer.acquisition_lock_timeout.total_seconds() == 30
        headers = [one for _, one in walk_headers(memoryview(bytes(found(answer).records)))]
        assert [one.base_offset for one in headers] == [0]
        told = await member.say({0: [(0, 1, [ACCEPT])]}, version=version)
        assert found(told).error_code is ErrorCode.none
        again = await member.fetch(acks={0: [(2, 2, [RELEASE])]}, version=version)
        assert found(again).acknowledge_error_code == 0
        assert ranges(again) == [(2, 2, 2)]

    with_broker(story)


def test_records_count_towards_the_quota_of_consumers() -> None:
    """Who has to wait gets nothing that would be locked meanwhile; its word counts at once."""

    async def story(bench: HandlerBench) -> None:
        member = await taker(bench)
        entity = [{"entity_type": "client-id", "entity_name": "test"}]
        ops = [{"key": "consumer_byte_rate", "value": 1000.0, "remove": False}]
        entries = [{"entity": entity, "ops": ops}]
        await bench.call(alter_client_quotas, entries=entries, validate_only=False)
        member.is_charged = True
        for _ in range(3):
            bench.append("clicks", b"a" * 20_000)
        first = await member.fetch()
        assert ranges(first) == [(0, 0, 1)]  # no more than the quota allows at once, but one batch
        wait_seconds = first.throttle_time.total_seconds()
        assert wait_seconds > 1
        early = await member.fetch(acks={0: [(0, 0, [ACCEPT])]})
        assert ranges(early) == []
        assert found(early).acknowledge_error_code == 0
        assert early.throttle_time.total_seconds() > 1
        other = Member(bench, "bob")
        await other.fetch(0, max_bytes=0)  # until the state was looked at
        assert ranges(await other.fetch()) == [(1, 2, 1)]  # nothing was locked for the first one
        await bench.cluster.clock.advance(60)
        assert ranges(await member.fetch()) == [(1, 1, 2)]

    with_broker(story)


def test_nobody_gets_what_another_one_has_and_a_close_gives_it_back() -> None:
    async def story(bench: HandlerBench) -> None:
        ann, bob = await taker(bench), await taker(bench, "bob")
        bench.append("clicks", b"a", b"b")
        assert ranges(await ann.fetch()) == [(0, 1, 1)]
        assert ranges(await bob.fetch()) == []
        await ann.fetch(acks={0: [(0, 0, [ACCEPT])]}, epoch=-1)
        assert ranges(await bob.fetch()) == [(1, 1, 2)]
        refused = await ann.fetch()
        assert refused.error_code is ErrorCode.share_session_not_found

    with_broker(story)


@pytest.mark.parametrize("by_fetch", [True, False])
def test_a_record_that_every_consumer_abandons_by_closing_comes_to_its_end(by_fetch: bool) -> None:
    """As with Kafka 4.3: the count goes up with each consumer, then there is a dead letter."""

    async def story(bench: HandlerBench) -> None:
        await bench.create("dlq.clicks", errors_deadletterqueue_group_enable="true")
        changes = [ConfigChange(name="errors.deadletterqueue.topic.name", value="dlq.clicks")]
        await bench.cluster.during(
            bench.services.admin.alter_group_configs(GROUP, changes, validate_only=False)
        )
        bench.append("clicks", b"a")
        counts: list[tuple[int, int, int]] = []
        for number in range(5):
            member = Member(bench, f"member-{number}")
            await earliest(bench)
            await member.join()
            await member.fetch(0, max_bytes=0)  # until the state is loaded
            await bench.cluster.clock.advance(1)
            counts += ranges(await member.fetch())
            if by_fetch:
                await member.fetch(epoch=-1)
            else:
                await member.say({}, epoch=-1)
            await bench.cluster.clock.advance(1)
        assert counts == [(0, 0, count) for count in range(1, 6)]
        letters = bench.services.partitions.require_leader("dlq.clicks", 0)
        assert letters.log.log_end_offset == 1

    with_broker(story)


def test_an_acknowledgement_counts_while_the_leader_has_no_session_with_the_store() -> None:
    async def story(bench: HandlerBench) -> None:
        ann = await taker(bench)
        bench.append("clicks", b"a", b"b")
        assert ranges(await ann.fetch()) == [(0, 1, 1)]
        partition = bench.services.partitions.require_leader("clicks", 0)
        partition.suspend()
        partition._notify_change()
        (answer,) = (await ann.say({0: [(0, 0, [ACCEPT])]})).responses
        assert answer.partitions[0].error_code is ErrorCode.none
        refused = await ann.fetch()
        assert found(refused).error_code == ErrorCode.not_leader_or_follower.value
        partition.apply_state(bench.services.image.topics["clicks"].partitions[0])
        partition._notify_change()
        (answer,) = (await ann.say({0: [(1, 1, [ACCEPT])]})).responses
        assert answer.partitions[0].error_code is ErrorCode.none

    with_broker(story)


def test_what_was_had_through_a_connection_that_ends_is_given_back_and_counted() -> None:
    async def story(bench: HandlerBench) -> None:
        ann, bob = await taker(bench), await taker(bench, "bob")
        bench.append("clicks", b"a")
        await ann.fetch()
        bench.services.shares.on_connection_closed(ann.connection)
        assert ranges(await bob.fetch()) == [(0, 0, 2)]

    with_broker(story)


def test_who_waits_is_woken_by_records_and_by_what_others_release() -> None:
    async def story(bench: HandlerBench) -> None:
        ann, bob = await taker(bench), await taker(bench, "bob")
        clock = bench.cluster.clock
        clock.call_later(0.3, lambda: bench.append("clicks", b"a"))
        before = clock.monotonic()
        assert ranges(await ann.fetch(max_wait=5_000)) == [(0, 0, 1)]
        clock.call_later(0.3, lambda: bench.services.shares.on_connection_closed(ann.connection))
        assert ranges(await bob.fetch(max_wait=5_000)) == [(0, 0, 2)]
        assert clock.monotonic() - before < 4

    with_broker(story)


def test_a_session_that_the_member_has_left_for_another_one_acquires_nothing() -> None:
    """A client whose connection hangs comes through another one; what the old one would be given
    would be locked for nobody."""

    async def story(bench: HandlerBench) -> None:
        ann, bob = await taker(bench), await taker(bench, "bob")
        clock, sessions = bench.cluster.clock, bench.services.shares.sessions
        clock.call_later(0.2, lambda: sessions.open(MemberKey(GROUP, "ann"), Connection()))
        clock.call_later(0.4, lambda: bench.append("clicks", b"a"))
        assert ranges(await ann.fetch(max_wait=2_000)) == []
        assert ranges(await bob.fetch()) == [(0, 0, 1)]

    with_broker(story)


def test_a_connection_that_ends_before_its_request_is_begun_leaves_no_session_and_no_locks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(bench: HandlerBench) -> None:
        bob = await taker(bench, "bob")
        bench.append("clicks", b"a")
        ann = Member(bench)
        begin, shares = bench.cluster.during, bench.services.shares

        def end_before(work: Any) -> Any:
            shares.on_connection_closed(ann.connection)
            return begin(work)

        with monkeypatch.context() as patch:
            patch.setattr(bench.cluster, "during", end_before)
            assert ranges(await ann.fetch(0)) == []
        assert len(shares.sessions) == 1
        assert ranges(await bob.fetch(max_wait=5_000)) == [(0, 0, 1)]

    with_broker(story)


def test_a_lock_that_is_over_wakes_who_waits() -> None:
    async def story(bench: HandlerBench) -> None:
        ann = await taker(bench, record_lock_duration_ms="15000")
        bob = await taker(bench, "bob")
        bench.append("clicks", b"a")
        await ann.fetch()
        assert ranges(await bob.fetch(max_wait=20_000)) == [(0, 0, 2)]
        refused = await ann.say({0: [(0, 0, [ACCEPT])]})
        assert found(refused).error_code is ErrorCode.invalid_record_state

    with_broker(story)


def test_who_joins_begins_where_an_administrator_said_though_an_old_session_is_open() -> None:
    """A member that was frozen, or whose machine is gone, leaves its connection open."""

    async def story(bench: HandlerBench) -> None:
        ann = await taker(bench)
        bench.append("clicks", b"a", b"b")
        await ann.fetch()
        await ann.say({0: [(0, 1, [ACCEPT])]})
        await bench.cluster.clock.advance(60)
        rows = [{"partition_index": 0, "start_offset": 1}]
        topics = [{"topic_name": "clicks", "partitions": rows}]
        altered = await bench.call(alter_share_group_offsets, group_id=GROUP, topics=topics)
        assert altered.error_code is ErrorCode.none
        bob = Member(bench, "bob")
        await bob.join()
        await bob.fetch(0, max_bytes=0)  # until the state was looked at
        await bob.fetch(max_bytes=0)  # and read again
        assert ranges(await bob.fetch()) == [(1, 1, 1)]

    with_broker(story)


def test_a_renewal_keeps_the_lock_and_fetches_nothing() -> None:
    async def story(bench: HandlerBench) -> None:
        ann = await taker(bench, record_lock_duration_ms="15000")
        bob = await taker(bench, "bob")
        bench.append("clicks", b"a")
        await ann.fetch()
        await bench.cluster.clock.advance(10)
        refused = await ann.fetch(acks={0: [(0, 0, [RENEW])]}, is_renew_ack=True)
        assert refused.error_code is ErrorCode.invalid_request
        ann.epoch -= 1  # the session has not heard of it
        nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait": 0}
        renewed = await ann.fetch(acks={0: [(0, 0, [RENEW])]}, is_renew_ack=True, **nothing)
        assert found(renewed).acknowledge_error_code == 0
        await bench.cluster.clock.advance(10)
        assert ranges(await bob.fetch()) == []
        unasked = await ann.say({0: [(0, 0, [RENEW])]})
        assert found(unasked).error_code is ErrorCode.invalid_request
        again = await ann.say({0: [(0, 0, [RENEW])]}, is_renew_ack=True)
        assert found(again).error_code is ErrorCode.none
        done = await ann.say({0: [(0, 0, [ACCEPT])]})
        assert found(done).error_code is ErrorCode.none

    with_broker(story)


def test_exactly_so_many_records_when_asked_for() -> None:
    async def story(bench: HandlerBench) -> None:
        ann = await taker(bench)
        bench.append("clicks", *(b"x" for _ in range(10)))
        assert ranges(await ann.fetch(max_records=3, share_acquire_mode=1)) == [(0, 2, 1)]
        assert ranges(await ann.fetch(max_records=3)) == [(3, 9, 1)]

    with_broker(story)


def test_who_wants_no_bytes_acquires_nothing_and_is_answered_when_its_time_is_over() -> None:
    async def story(bench: HandlerBench) -> None:
        ann = await taker(bench)
        bench.append("clicks", b"a")
        asked_at = bench.cluster.clock.monotonic()
        assert ranges(await ann.fetch(max_bytes=0, max_wait=500)) == []
        assert bench.cluster.clock.monotonic() - asked_at >= 0.5
        assert ranges(await ann.fetch(max_bytes=1)) == [(0, 0, 1)]

    with_broker(story)


def test_a_session_expects_its_epochs() -> None:
    async def story(bench: HandlerBench) -> None:
        ann = await taker(bench)
        wrong = await ann.fetch(epoch=7)
        assert wrong.error_code is ErrorCode.invalid_share_session_epoch
        opening = await ann.say({0: [(0, 0, [ACCEPT])]}, epoch=0)
        assert opening.error_code is ErrorCode.invalid_share_session_epoch
        unknown = await Member(bench, "eve").say({0: [(0, 0, [ACCEPT])]}, epoch=3)
        assert unknown.error_code is ErrorCode.share_session_not_found
        early = await Member(bench, "eve").fetch(acks={0: [(0, 0, [ACCEPT])]})
        assert early.error_code is ErrorCode.invalid_request
        nameless = await Member(bench, "").fetch()
        assert nameless.error_code is ErrorCode.invalid_request

    with_broker(story)


def test_there_is_a_limit_to_sessions() -> None:
    async def story(bench: HandlerBench) -> None:
        await taker(bench)
        bench.services.shares.sessions._max_sessions = lambda: 1
        refused = await Member(bench, "bob").fetch()
        assert refused.error_code is ErrorCode.share_session_limit_reached
        again = await Member(bench, "ann").fetch()  # in the place of its own
        assert again.error_code is ErrorCode.none

    with_broker(story)


def test_what_is_not_here_is_told_by_partition() -> None:
    async def story(bench: HandlerBench) -> None:
        ann = await taker(bench)
        topics = [
            {
                "topic_id": UUID(int=99),
                "partitions": [{"partition_index": 0, "acknowledgement_batches": []}],
            }
        ]
        (answer,) = (await ann.fetch(topics=topics)).responses
        assert answer.partitions[0].error_code is ErrorCode.unknown_topic_id
        forgotten = [{"topic_id": UUID(int=99), "partitions": [0]}]
        assert (await ann.fetch(forgotten_topics_data=forgotten)).responses == ()
        unread = await ann.say({7: [(0, 0, [ACCEPT])]})
        assert found(unread, 7).error_code is ErrorCode.unknown_topic_or_partition

    with_broker(story)


def test_all_partitions_are_served_in_turn() -> None:
    async def story(bench: HandlerBench) -> None:
        ann = await taker(bench)
        other = bench.services.partitions.require_leader("clicks", 1)
        for _ in range(4):
            bench.append("clicks", b"a")
            bench.append_to(other, b"b")
        served = [
            one.partition_index
            for answer in [await ann.fetch(max_records=1) for _ in range(4)]
            for topic in answer.responses
            for one in topic.partitions
        ]
        assert sorted(served) == [0, 0, 1, 1]

    with_broker(story)


@pytest.mark.parametrize("copies", [True, False])
def test_what_is_rejected_goes_to_the_dead_letter_topic(copies: bool) -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.create("dlq.clicks", errors_deadletterqueue_group_enable="true")
        ann = await taker(bench)
        changes = [
            ConfigChange(name="errors.deadletterqueue.topic.name", value="dlq.clicks"),
            ConfigChange(
                name="errors.deadletterqueue.copy.record.enable", value=str(copies).lower()
            ),
        ]
        await bench.cluster.during(
            bench.services.admin.alter_group_configs(GROUP, changes, validate_only=False)
        )
        bench.append("clicks", b"a", b"b", b"c")
        await ann.fetch()
        told = await ann.say({0: [(0, 2, [ACCEPT, REJECT, ACCEPT])]})
        assert found(told).error_code is ErrorCode.none
        log = bench.services.partitions.require_leader("dlq.clicks", 0).log
        read = log.read(0, 1 << 20, end_offset=log.log_end_offset, min_one=True)
        (letter,) = records_of(read.slice.read())
        assert letter.value == (b"b" if copies else None)
        assert {name: value.decode() for name, value in letter.headers} == {
            "__dlq.errors.topic": "clicks",
            "__dlq.errors.partition": "0",
            "__dlq.errors.offset": "1",
            "__dlq.errors.group": GROUP,
            "__dlq.errors.delivery.count": "1",
            "__dlq.errors.message": "The record was rejected by a member of the group.",
        }

    with_broker(story)


def test_nobody_writes_through_a_share_group_to_a_topic_that_is_not_meant_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.create("dlq.clicks")
        ann = await taker(bench)
        changes = [ConfigChange(name="errors.deadletterqueue.topic.name", value="dlq.clicks")]
        await bench.cluster.during(
            bench.services.admin.alter_group_configs(GROUP, changes, validate_only=False)
        )
        bench.append("clicks", b"a")
        await ann.fetch()
        told = await ann.say({0: [(0, 0, [REJECT])]})
        assert found(told).error_code is ErrorCode.none
        log = bench.services.partitions.require_leader("dlq.clicks", 0).log
        assert log.log_end_offset == 0
        wrong = [ConfigChange(name="errors.deadletterqueue.topic.name", value="orders")]
        with pytest.raises(InvalidConfigError, match=r"does not begin with 'dlq\.'"):
            await bench.cluster.during(
                bench.services.admin.alter_group_configs(GROUP, wrong, validate_only=False)
            )

    with_broker(story)
    assert "has not set errors.deadletterqueue.group.enable" in caplog.text
