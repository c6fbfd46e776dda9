"""Sending batches: order, attempts, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from client.scripted_broker import (
    HANG_UP,
    METADATA,
    NO_ANSWER,
    PRODUCE,
    Instead,
    Request,
    Script,
    Stage,
    metadata,
)
from moldau.client.batch_sender import UNKNOWN_OFFSET, BatchSender, SendSettings
from moldau.config.client_options import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from moldau.errors import BatchTooLargeError, NotLeaderError, UnsupportedVersionError
from moldau.model import TopicPartition
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.batch_reader import records_of
from moldau.records.compression import Codec
from moldau.records.record import NewRecord

INIT_PRODUCER_ID = 22
CLICKS = TopicPartition("clicks", 0)


def rows(*values: bytes) -> list[NewRecord]:
    return [NewRecord(1000, None, value) for value in values]


def batch_in(request: Request) -> bytes:
    return bytes(request.topic_data[0].partition_data[0].records)


def header_in(request: Request) -> BatchHeader:
    return read_header(batch_in(request))


def taken(base_offset: int = 0, code: int = 0) -> Mapping[str, object]:
    row = {
        "index": 0,
        "error_code": code,
        "base_offset": base_offset,
        "log_append_time": -1,
        "log_start_offset": 0,
        "record_errors": (),
        "error_message": None,
    }
    return {
        "responses": [{"name": "clicks", "partition_responses": [row]}],
        "throttle_time": 0,
    }


def in_turn(*answers: Mapping[str, object] | Instead) -> Script:
    left = list(answers)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def set_up(stage: Stage, produce: Script, brokers: int = 1) -> None:
    for broker in stage.brokers:
        broker.scripts[METADATA] = metadata({"clicks": [1]}, brokers=brokers)
        broker.scripts[PRODUCE] = produce
        broker.scripts[INIT_PRODUCER_ID] = lambda request: {
            "throttle_time": 0,
            "error_code": 0,
            "producer_id": 500,
            "producer_epoch": 3,
        }


def test_a_batch_arrives_with_all_its_records_and_the_offset_comes_back() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken(base_offset=42)))

    async def story() -> int:
        client = stage.make_client()
        sender = BatchSender(client, SendSettings(codec=Codec.GZIP))
        offset = await sender.send(CLICKS, rows(b"one", b"two"))
        await client.close()
        return offset

    assert stage.play(story) == 42
    (request,) = stage.brokers[0].asked(PRODUCE)
    assert request.acks == ACKS_ALL
    assert header_in(request).codec == Codec.GZIP
    assert [record.value for record in records_of(batch_in(request))] == [b"one", b"two"]


def test_sequences_count_the_records_of_each_partition() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken()))

    async def story() -> None:
        client = stage.make_client()
        sender = BatchSender(client, SendSettings())
        await sender.send(CLICKS, rows(b"a", b"b", b"c"))
        await sender.send(CLICKS, rows(b"d"))
        await sender.send(CLICKS, rows(b"e"))
        await client.close()

    stage.play(story)
    headers = [header_in(request) for request in stage.brokers[0].asked(PRODUCE)]
    assert [header.base_sequence for header in headers] == [0, 3, 4]
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(500, 3)}
    assert len(stage.brokers[0].asked(INIT_PRODUCER_ID)) == 1


def test_batches_of_a_partition_keep_the_order_of_the_calls() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken()))

    async def story() -> None:
        client = stage.make_client()
        sender = BatchSender(client, SendSettings())
        await asyncio.gather(*[sender.send(CLICKS, rows(b"%d" % n)) for n in range(10)])
        await client.close()

    stage.play(story)
    sent = [records_of(batch_in(request))[0].value for request in stage.brokers[0].asked(PRODUCE)]
    assert sent == [b"%d" % n for n in range(10)]


def test_a_batch_whose_answer_got_lost_is_sent_again_with_the_same_sequence() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken(), HANG_UP, taken(base_offset=3)))

    async def story() -> int:
        client = stage.make_client()
        sender = BatchSender(client, SendSettings())
        await sender.send(CLICKS, rows(b"a", b"b", b"c"))
        offset = await sender.send(CLICKS, rows(b"d"))
        await client.close()
        return offset

    assert stage.play(story) == 3
    headers = [header_in(request) for request in stage.brokers[0].asked(PRODUCE)]
    assert [header.base_sequence for header in headers] == [0, 3, 3]


def test_a_batch_that_the_broker_has_already_counts_as_taken() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken(code=46)))  # DUPLICATE_SEQUENCE_NUMBER

    async def story() -> int:
        client = stage.make_client()
        offset = await BatchSender(client, SendSettings()).send(CLICKS, rows(b"a"))
        await client.close()
        return offset

    assert stage.play(story) == UNKNOWN_OFFSET


def test_the_new_leader_is_looked_for_when_the_old_one_says_no() -> None:
    stage = Stage(broker_count=2)
    set_up(stage, in_turn(taken(base_offset=7)), brokers=2)
    stage.brokers[0].scripts[PRODUCE] = in_turn(taken(code=6))  # NOT_LEADER_OR_FOLLOWER

    async def story() -> int:
        client = stage.make_client()
        await client.metadata.refresh(("clicks",))
        for broker in stage.brokers:
            broker.scripts[METADATA] = metadata({"clicks": [2]}, brokers=2)
        offset = await BatchSender(client, SendSettings()).send(CLICKS, rows(b"a"))
        await client.close()
        return offset

    assert stage.play(story) == 7
    assert len(stage.brokers[0].asked(PRODUCE)) == 1
    assert len(stage.brokers[1].asked(PRODUCE)) == 1


def test_a_broker_that_is_away_for_a_while_is_waited_for() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken(base_offset=9)))

    async def story() -> int:
        client = stage.make_client()
        sender = BatchSender(client, SendSettings())
        await sender.send(CLICKS, rows(b"a"))
        stage.network.crash("b1")
        sending = asyncio.ensure_future(sender.send(CLICKS, rows(b"b")))
        await stage.clock.sleep(3.0)
        assert not sending.done()
        await stage.listen()
        offset = await sending
        await client.close()
        return offset

    assert stage.play(story) == 9


def test_delivery_is_given_up_in_time() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken(code=6)))

    async def story() -> None:
        client = stage.make_client()
        sender = BatchSender(client, SendSettings(delivery_seconds=4.0))
        with pytest.raises(NotLeaderError):
            await sender.send(CLICKS, rows(b"a"))
        await client.close()

    stage.play(story)
    assert stage.clock.monotonic() <= 4.0


def test_a_batch_that_is_refused_for_good_is_not_sent_again() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken(code=10)))  # MESSAGE_TOO_LARGE

    async def story() -> None:
        client = stage.make_client()
        with pytest.raises(BatchTooLargeError, match="clicks-0"):
            await BatchSender(client, SendSettings()).send(CLICKS, rows(b"a"))
        await client.close()

    stage.play(story)
    assert len(stage.brokers[0].asked(PRODUCE)) == 1


def test_without_full_confirmation_there_is_no_producer_id() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken(base_offset=1)))

    async def story() -> None:
        client = stage.make_client()
        await BatchSender(client, SendSettings(acks=ACKS_LEADER)).send(CLICKS, rows(b"a"))
        await client.close()

    stage.play(story)
    assert not stage.brokers[0].asked(INIT_PRODUCER_ID)
    assert not header_in(stage.brokers[0].asked(PRODUCE)[0]).has_producer


def test_nothing_is_waited_for_when_nobody_confirms() -> None:
    stage = Stage()
    set_up(stage, in_turn(NO_ANSWER))

    async def story() -> int:
        client = stage.make_client()
        sender = BatchSender(client, SendSettings(acks=ACKS_NONE))
        await sender.send(CLICKS, rows(b"a"))
        offset = await sender.send(CLICKS, rows(b"b"))
        await client.close()
        return offset

    assert stage.play(story) == UNKNOWN_OFFSET
    assert len(stage.brokers[0].asked(PRODUCE)) == 2


def test_a_broker_without_producer_ids_is_served_without() -> None:
    stage = Stage()
    set_up(stage, in_turn(taken(base_offset=1)))
    del stage.brokers[0].versions[INIT_PRODUCER_ID]

    async def story() -> int:
        client = stage.make_client()
        offset = await BatchSender(client, SendSettings()).send(CLICKS, rows(b"a"))
        await client.close()
        return offset

    assert stage.play(story) == 1
    assert not header_in(stage.brokers[0].asked(PRODUCE)[0]).has_producer


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_the_request_can_be_sent(version: int) -> None:
    stage = Stage()
    stage.brokers[0].versions[PRODUCE] = (version, version)
    stage.brokers[0].versions[INIT_PRODUCER_ID] = (version % 6, version % 6)
    set_up(stage, in_turn(taken(base_offset=5)))

    async def story() -> int:
        client = stage.make_client()
        offset = await BatchSender(client, SendSettings()).send(CLICKS, rows(b"a"))
        await client.close()
        return offset

    assert stage.play(story) == 5


def test_zstd_is_not_sent_to_brokers_that_do_not_know_it() -> None:
    stage = Stage()
    stage.brokers[0].versions[PRODUCE] = (3, 6)
    set_up(stage, in_turn(taken()))

    async def story() -> None:
        client = stage.make_client()
        with pytest.raises(UnsupportedVersionError, match="zstd"):
            await BatchSender(client, SendSettings(codec=Codec.ZSTD)).send(CLICKS, rows(b"a"))
        await client.close()

    stage.play(story)
