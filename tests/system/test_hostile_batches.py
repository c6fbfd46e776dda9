"""Batches that lie, overflow or explode: refused, and never poison for those who read.

What a broker takes it must be able to give to every client, so the last test of each kind reads the
whole log with all of them.
"""

from __future__ import annotations

import contextlib
import mmap
import random
import socket
import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import pytest
from crc32c import crc32c
from kio.schema.errors import ErrorCode

from moldau.errors import MoldauError
from moldau.records.batch_header import read_header
from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch, payload_of, records_of
from support import aiokafka_client, confluent_client, kafka_python_client
from support.broker_process import BrokerProcess, running_broker
from support.requests import full_request
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS
from support.wire_client import ClosedByBroker, WireClient

MEBIBYTE = 1 << 20
TIME_MS = 1_700_000_000_000
RECORDS_AT = 61
ROWS = [(TIME_MS + n, b"key-%d" % n, b"value-%d" % n, (("h", b"%d" % n),)) for n in range(5)]

CORRUPT = {ErrorCode.corrupt_message, ErrorCode.invalid_record}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker({"message.max.bytes": str(20 * MEBIBYTE)}) as process:
        yield process


@pytest.fixture(scope="module")
def topics(broker: BrokerProcess) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 pytest shows it with a failure
    return random.Random(seed)


def good_batch(codec: Codec = Codec.NONE) -> bytearray:
    return build_batch(ROWS, codec=codec)


def reseal(batch: bytearray) -> bytearray:
    """With the length and the CRC that belong to what is inside now."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


def poke(batch: bytearray, place: int, layout: str, value: int) -> bytearray:
    struct.pack_into(layout, batch, place, value)
    return reseal(batch)


def with_records(records: bytes, count: int, codec: int = 0) -> bytearray:
    """A batch whose header says what it should, around records that are what they are."""
    batch = good_batch()[:RECORDS_AT] + records
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    return reseal(batch)


def wrong_crc() -> bytearray:
    batch = good_batch()
    batch[-1] ^= 0xFF
    return batch


LIES: dict[str, tuple[Callable[[], bytearray], set[ErrorCode]]] = {
    "nothing at all": (bytearray, {ErrorCode.invalid_record}),
    "a few bytes": (lambda: bytearray(b"\x00" * 7), CORRUPT),
    "a header that is cut": (lambda: good_batch()[:40], CORRUPT),
    "a batch that is cut": (lambda: good_batch()[:-3], CORRUPT),
    "two batches": (lambda: good_batch() + good_batch(), {ErrorCode.invalid_record}),
    "bytes behind the batch": (lambda: good_batch() + b"\x00\x00", CORRUPT),
    "a wrong CRC": (wrong_crc, {ErrorCode.corrupt_message}),
    "magic 0": (lambda: poke(good_batch(), 16, ">b", 0), CORRUPT),
    "magic 1": (lambda: poke(good_batch(), 16, ">b", 1), CORRUPT),
    "magic 3": (lambda: poke(good_batch(), 16, ">b", 3), CORRUPT),
    "more records than there are": (
        lambda: poke(poke(good_batch(), 57, ">i", 9), 23, ">i", 8),
        CORRUPT,
    ),
    "fewer records than there are": (
        lambda: poke(poke(good_batch(), 57, ">i", 2), 23, ">i", 1),
        CORRUPT,
    ),
    "no records": (lambda: poke(poke(good_batch(), 57, ">i", 0), 23, ">i", -1), CORRUPT),
    "a negative count": (lambda: poke(good_batch(), 57, ">i", -5), CORRUPT),
    "two billion records": (
        lambda: poke(poke(good_batch(), 57, ">i", (1 << 31) - 1), 23, ">i", (1 << 31) - 2),
        CORRUPT,
    ),
    "an offset delta that does not fit": (lambda: poke(good_batch(), 23, ">i", 99), CORRUPT),
    "a control batch": (lambda: poke(good_batch(), 21, ">h", 0x20), {ErrorCode.invalid_record}),
    "an unknown codec": (
        lambda: poke(good_batch(), 21, ">h", 7),
        {ErrorCode.unsupported_compression_type, *CORRUPT},
    ),
    "a codec that is not used": (lambda: poke(good_batch(), 21, ">h", 1), CORRUPT),
    "a transaction of nobody": (
        lambda: poke(good_batch(), 21, ">h", 0x10),
        {ErrorCode.transactional_id_authorization_failed},  # the request names no id, as in Kafka
    ),
    "garbage as records": (lambda: with_records(b"\xff" * 100, 3), CORRUPT),
    "a record of negative length": (lambda: with_records(b"\x01" + b"\x00" * 20, 1), CORRUPT),
    "a record of two billion bytes": (
        lambda: with_records(b"\xfe\xff\xff\xff\x0f" + b"\x00" * 20, 1),
        CORRUPT,
    ),
    "a varint without an end": (lambda: with_records(b"\xff" * 30, 1), CORRUPT),
    "cut gzip": (lambda: with_records(zlib.compress(b"x" * 999, wbits=31)[:-9], 1, 1), CORRUPT),
    "garbage as zstd": (lambda: with_records(b"not compressed", 1, 4), CORRUPT),
    "garbage as lz4": (lambda: with_records(b"not compressed", 1, 3), CORRUPT),
    "garbage as snappy": (lambda: with_records(b"not compressed", 1, 2), CORRUPT),
}


def produce(wire: WireClient, topic: str, batch: bytes) -> tuple[ErrorCode, int]:
    request = full_request(0, 9, {"name": topic, "acks": -1, "records": bytes(batch)})
    (answer,) = wire.ask(request).responses[0].partition_responses
    return answer.error_code, answer.base_offset


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_lies_is_refused_and_changes_nothing(
    broker: BrokerProcess, topics: Topics, lie: str
) -> None:
    make, expected = LIES[lie]
    topic = topics.create()
    with WireClient(broker.port) as wire:
        assert produce(wire, topic, good_batch()) == (ErrorCode.none, 0)
        code, offset = produce(wire, topic, make())
        assert code in expected
        assert offset == -1
        # The same connection goes on, and nothing was written in between.
        assert produce(wire, topic, good_batch()) == (ErrorCode.none, 5)
    assert_readable(broker, topic)


def test_no_records_at_all(broker: BrokerProcess, topics: Topics) -> None:
    """Null, which newer versions may say, where a batch should be."""
    topic = topics.create()
    with WireClient(broker.port) as wire:
        for version in (3, 8, 9, 11):
            request = full_request(0, version, {"name": topic, "acks": -1, "records": None})
            (answer,) = wire.ask(request).responses[0].partition_responses
            assert answer.error_code in CORRUPT


def test_clients_that_go_while_their_batch_is_being_unpacked(
    broker: BrokerProcess, topics: Topics, chance: random.Random
) -> None:
    """Workers look into large batches; the connection they came from may be gone by then."""
    topic = topics.create(config={"compression.type": "lz4", "max.message.bytes": "20000000"})
    row = (TIME_MS, b"key", chance.randbytes(1_000) * 4_000, ())
    batch = bytes(build_batch([row], codec=Codec.GZIP))
    request = full_request(0, 9, {"name": topic, "acks": -1, "records": batch})
    for number in range(20):
        with WireClient(broker.port) as wire:
            wire.send_request(request)
            if number % 2:  # a reset instead of a polite end
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with WireClient(broker.port) as wire:
        code, offset = produce(wire, topic, good_batch())
        assert code is ErrorCode.none
        assert 0 <= offset <= 20
    assert_readable(broker, topic)


ZEROS = memoryview(mmap.mmap(-1, 400 * MEBIBYTE))  # takes no memory until it is touched

BOMBS: dict[str, tuple[Codec, Callable[[], bytes], dict[str, str]]] = {
    "gzip": (Codec.GZIP, lambda: zlib.compress(ZEROS, 1, wbits=31), {}),
    "lz4": (Codec.LZ4, lambda: bytes(cramjam.lz4.compress(ZEROS)), {}),
    "zstd": (Codec.ZSTD, lambda: bytes(cramjam.zstd.compress(ZEROS, 1)), {}),
    "zstd to be stored as lz4": (
        Codec.ZSTD,
        lambda: bytes(cramjam.zstd.compress(ZEROS, 1)),
        {"compression.type": "lz4"},
    ),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_does_not_go_off(broker: BrokerProcess, topics: Topics, bomb: str) -> None:
    """A lot of zeros in a few kilobytes or megabytes."""
    codec, make, config = BOMBS[bomb]
    topic = topics.create(config=config)
    before = broker.peak_memory_bytes()
    with WireClient(broker.port) as wire:
        code, _ = produce(wire, topic, with_records(make(), 1, codec))
        assert code is not ErrorCode.none
        assert produce(wire, topic, good_batch()) == (ErrorCode.none, 0)
    assert broker.peak_memory_bytes() < before + 300 * MEBIBYTE
    assert_readable(broker, topic)


def one_large_record(size: int) -> bytes:
    """The payload of a batch with one record of zeros."""
    value = varint(size) + bytes(size)
    record = b"\x00\x00\x00\x01" + value + b"\x00"  # no key, no headers
    return varint(len(record)) + record


def varint(number: int) -> bytes:
    raw, found = number << 1, bytearray()
    while raw >= 0x80:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*found, raw])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD], ids=lambda codec: codec.label)
def test_many_bombs_at_once_share_a_budget_and_hold_up_nobody(topics: Topics, codec: Codec) -> None:
    """24 connections, each with records that unfold to 80 MB and are good otherwise."""
    payload = one_large_record(80 * MEBIBYTE)
    level = {"level": 9} if codec is Codec.GZIP else {"level": 3}
    packer = cramjam.gzip if codec is Codec.GZIP else cramjam.zstd
    bomb = with_records(bytes(packer.compress(payload, **level)), 1, codec)
    assert len(bomb) < 100_000
    with running_broker() as broker:
        topic = Topics(broker.bootstrap).create()
        before = broker.peak_memory_bytes()
        request = full_request(0, 9, {"name": topic, "acks": -1, "records": bytes(bomb)})
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(WireClient(broker.port)) for _ in range(24)]
            sent = [wire.send_request(request) for wire in wires]
            with WireClient(broker.port) as honest:
                batch = build_batch([(TIME_MS, None, b"x" * 200_000, ())] * 2, codec=codec)
                assert produce(honest, topic, batch)[0] is ErrorCode.none
            for wire, correlation_id in zip(wires, sent, strict=True):
                answer = wire.receive_response(type(request), correlation_id)
                (one,) = answer.responses[0].partition_responses
                assert one.error_code in (ErrorCode.none, ErrorCode.request_timed_out)
        # As a stream: eight at a time, each with its window. Whole, a single one takes 80.
        assert broker.peak_memory_bytes() < before + 70 * MEBIBYTE


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_whatever_is_taken_can_be_read_by_every_client(
    broker: BrokerProcess, topics: Topics, chance: random.Random, codec: Codec
) -> None:
    """Batches with a few bytes changed and a CRC that is right: most are nonsense, some are not."""
    topic = topics.create()
    taken = 0
    places = list(range(21, len(good_batch(codec))))
    if codec is Codec.SNAPPY:
        # The version in the framing: Java's library takes a newer one, Python's clients do not.
        del places[RECORDS_AT - 21 : RECORDS_AT - 21 + 16]
    with WireClient(broker.port) as wire:
        for _ in range(300):
            batch = good_batch(codec)
            for _ in range(chance.randrange(1, 4)):
                place = chance.choice(places)
                batch[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            if is_beyond_pythons_clients(reseal(batch)):
                continue
            try:
                code, _ = produce(wire, topic, batch)
            except ClosedByBroker:
                pytest.fail("a bad batch is an error of its partition, not of the connection")
            taken += code is ErrorCode.none
        assert produce(wire, topic, good_batch())[0] is ErrorCode.none
    assert taken < 300
    assert_readable(broker, topic)


def is_beyond_pythons_clients(batch: bytearray) -> bool:
    """What Kafka takes, and we do, and what aiokafka, kafka-python or confluent-kafka choke on.

    Names of headers that are no UTF-8, and record attributes, which mean nothing today, that look
    like the first byte of a longer number.
    """
    try:
        for record in records_of(batch):
            for name, _ in record.headers:
                name.encode()
        return any(attributes >= 0x80 for attributes in record_attributes(batch))
    except UnicodeEncodeError:
        return True
    except (MoldauError, ValueError, LookupError):
        return False  # nonsense: the broker's to refuse


def record_attributes(batch: bytearray) -> Iterator[int]:
    payload, position = payload_of(batch, read_header(batch), MEBIBYTE), 0
    while position < len(payload):
        length = shift = 0
        while True:
            byte = payload[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield payload[position]
        position += length >> 1  # zigzag, and not negative


def assert_readable(broker: BrokerProcess, topic: str) -> None:
    """Every client reads from the first record to the last."""
    with confluent_client.consumer(broker.bootstrap) as client:
        partition = confluent_client.TopicPartition(topic, 0)
        _, end = client.get_watermark_offsets(partition, PATIENCE_SECONDS)
    for reader in (confluent_client, aiokafka_client, kafka_python_client):
        got = reader.consume(broker.bootstrap, topic, end, isolation_level="read_uncommitted")
        assert [one.offset for one in got] == list(range(end)), reader.NAME
