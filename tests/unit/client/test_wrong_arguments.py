"""Clients that are made of, or asked with, something of another type: told what to give instead.

Nobody is asked, so no broker is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import moldau
from moldau.client.consumer.delegate import read_offsets, read_time_ms
from moldau.client.rules.arguments import require_partitions, require_seconds, require_whole
from moldau.client.rules.offsets import GroupOffset

NOBODY = "127.0.0.1:1"
PARTITION = moldau.TopicPartition("clicks", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key_serializer": 5}, "key_serializer: give a function, like str.encode, not 5"),
        ({"value_serializer": "utf-8"}, "value_serializer: give a function, .* not 'utf-8'"),
        ({"interceptors": 5}, "interceptors: give a list, not 5"),
        ({"interceptors": [5]}, "interceptors: give objects with on_send"),
    ],
)
def test_a_producer_is_not_made_of_something_else(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        moldau.Producer(NOBODY, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topics": 5}, r"give a list of names, like \['clicks'\], not 5"),
        ({"topics": [5]}, r"give a list of names, like \['clicks'\]; 5 is int"),
        ({"group": 5}, "group: give its name, like 'billing', not 5"),
        ({"pattern": 5}, "pattern: give a regular expression"),
        ({"pattern": "a", "deny": 5}, "pattern: give a regular expression"),
        ({"assignors": "range"}, r"assignors: give a list, like \['range'\], not 'range'"),
        ({"assignors": [5]}, "assignors: give names, like 'range'"),
        ({"key_deserializer": 5}, "key_deserializer: give a function, like bytes.decode, not 5"),
        ({"on_lost": 5}, "on_lost: give a function, like lambda partitions"),
    ],
)
def test_a_consumer_is_not_made_of_something_else(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        moldau.Consumer(NOBODY, **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: moldau.Producer(), "Producer: missing a required argument: 'bootstrap'"),  # type: ignore[call-arg]
        (
            lambda: moldau.Producer(bootstrap_servers="127.0.0.1:1"),  # type: ignore[call-arg]
            "bootstrap_servers is called bootstrap here",
        ),
        (lambda: moldau.Consumer(NOBODY, "clicks"), "Consumer: too many positional arguments"),  # type: ignore[misc]
        (lambda: moldau.Admin(NOBODY, 5), "settings: give ClientSettings, not 5"),  # type: ignore[arg-type]
        (lambda: moldau.SimpleConsumer(9092), "broker: give its address, like '127.0.0.1:9092'"),  # type: ignore[arg-type]
        (lambda: moldau.Queue(NOBODY, group=5, topic="a"), "group: give its name"),  # type: ignore[arg-type]
        (lambda: moldau.Queue(NOBODY, group="a", topic=5), "give a list of names"),  # type: ignore[arg-type]
    ],
)
def test_other_clients_are_not_made_of_something_else(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize("name", ["send", "send_nowait"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topic": 123}, "topic: give its name, like 'clicks', not 123"),
        ({"topic": ["clicks"]}, "topic: give its name, like 'clicks', not \\['clicks'\\]"),
        ({"partition": "0"}, "partition: give its number, counted from 0, not '0'"),
        ({"value": "a"}, "the value is str, not bytes; encode it, or give the producer"),
        ({"headers": 5}, "headers: give a mapping or pairs, like {'trace': b'7'}, not 5"),
        ({"headers": ["trace"]}, "headers: give a mapping or pairs"),
        ({"headers": [5]}, "headers: give a mapping or pairs"),
        ({"headers": {"trace": "7"}}, "the header is str, not bytes; encode it"),
    ],
)
def test_a_record_of_wrong_types_is_told_as_such(
    name: str, arguments: dict[str, Any], message: str
) -> None:
    with moldau.Producer(NOBODY) as producer, pytest.raises(TypeError, match=message):
        getattr(producer, name)(**{"topic": "clicks", "value": b"", **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topic": 123}, "topic: give its name"),
        ({"values": b"abc"}, "values: give a list, not b'abc'"),
        ({"values": 5}, "values: give a list, not 5"),
        ({"keys": 5}, "keys: give a list, not 5"),
        ({"partition": "0"}, "partition: give its number"),
    ],
)
def test_many_records_of_wrong_types_are_told_as_such(
    arguments: dict[str, Any], message: str
) -> None:
    with moldau.Producer(NOBODY) as producer, pytest.raises(TypeError, match=message):
        producer.send_many(**{"topic": "clicks", "values": [b""], **arguments})


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda one: one.seek("clicks", 5), "partition: give moldau.TopicPartition"),
        (lambda one: one.seek(PARTITION, "5"), "offset: give a number, not '5'"),
        (lambda one: one.pause("clicks"), "give a list of partitions"),
        (lambda one: one.assign(5), "give a list of partitions"),
        (lambda one: one.assign(PARTITION), "give a list of partitions"),
        (lambda one: one.assign(["clicks"]), "partition: give moldau.TopicPartition"),
        (lambda one: one.commit(5), "give a list of records, or a mapping of offsets, not 5"),
        (lambda one: one.commit({"clicks": 5}), "partition: give moldau.TopicPartition"),
        (lambda one: one.commit({PARTITION: "5"}), "offset: give a number, not '5'"),
        (lambda one: one.seek_to_time("noon"), "time: give milliseconds since 1970"),
        (lambda one: one.position(5), "partition: give moldau.TopicPartition"),
        (lambda one: one.end_offsets("clicks"), "give a list of partitions"),
        (lambda one: one.partitions_for(5), "topic: give its name"),
        (lambda one: one.poll("x"), "timeout_seconds: give a number of seconds, not 'x'"),
        (lambda one: one.poll(None), "timeout_seconds: give a number of seconds, not None"),
    ],
)
def test_a_consumer_is_not_asked_with_something_else(
    ask: Callable[[moldau.Consumer], object], message: str
) -> None:
    with moldau.Consumer(NOBODY, group="g") as consumer, pytest.raises(TypeError, match=message):
        ask(consumer)


def test_a_pair_is_as_good_as_a_partition() -> None:
    with moldau.Consumer(NOBODY) as consumer:
        consumer.assign([("clicks", 0)])  # type: ignore[list-item]
        assert consumer.assignment == {PARTITION}


def test_numbers_of_a_data_frame_are_as_good() -> None:
    numpy = pytest.importorskip("numpy")
    assert require_partitions([moldau.TopicPartition("clicks", numpy.int64(0))]) == [PARTITION]
    assert require_whole(numpy.int32(5), "offset", "a number") == 5
    assert require_seconds(numpy.float32(0.5)) == 0.5
    with moldau.Consumer(NOBODY) as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, numpy.int32(5))
    offsets = read_offsets({("clicks", numpy.int32(0)): numpy.int64(7)})
    assert offsets == {PARTITION: GroupOffset(offset=7)}
    assert type(offsets[PARTITION].offset) is int  # as messages and documents want it
    assert read_time_ms(numpy.int64(7)) == 7


def test_one_user_is_not_taken_for_its_letters() -> None:
    with moldau.Admin(NOBODY) as admin, pytest.raises(TypeError, match="give a list of names"):
        admin.describe_scram_credentials("alice")
