"""Serializers of a registry in Moldau's own clients: for threads, for tasks, and in queues."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

import moldau
from moldau.errors import (
    RecordDeserializationError,
    RegistryUnreachableError,
    SchemaEncodingError,
    SchemaNotFoundError,
    TopicNotReadyError,
)
from moldau.schemas import Schema, SchemaDeserializer, SchemaRegistry, SchemaSerializer
from support.schema_registry import RegistryServer, serve_registry

SECONDS = 120.0


def click(*fields: object) -> Schema:
    user = {"name": "user", "type": "string"}
    return Schema(text=json.dumps({"type": "record", "name": "Click", "fields": [user, *fields]}))


PAGE = {"name": "page", "type": "string", "default": "?"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with moldau.testing.broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serve_registry() as found:
        yield found


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url, timeout_seconds=60)


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.nodeid))}"
    with moldau.Admin(bootstrap) as admin:
        admin.create_topics([moldau.NewTopic(name=name, partitions=1)])
    return name


def read(consumer: moldau.Consumer, count: int) -> list[object]:
    found: list[object] = []
    while len(found) < count:
        found += [(record.key, record.value) for record in consumer.poll(SECONDS)]
    return found


def test_threads_write_and_read_and_each_schema_is_asked_for_once(
    bootstrap: str, topic: str, registry: SchemaRegistry, server: RegistryServer
) -> None:
    keys = SchemaSerializer(registry, Schema(text='"long"'))
    values = SchemaSerializer(registry, click())
    with moldau.Producer(bootstrap, key_serializer=keys, value_serializer=values) as producer:
        producer.send(topic, {"user": "a"}, key=1).result(SECONDS)
        producer.send_many(topic, [{"user": "b"}, None], [2, 3]).result(SECONDS)
        with pytest.raises(SchemaEncodingError, match="Click"):
            producer.send(topic, {"user": 5}, key=1)
    with moldau.Producer(
        bootstrap, value_serializer=SchemaSerializer(registry, click(PAGE))
    ) as producer:
        producer.send(topic, {"user": "c", "page": "home"}).result(SECONDS)

    assert registry.subjects() == [f"{topic}-key", f"{topic}-value"]
    server.stored.requests.clear()
    fresh = SchemaRegistry(server.url, timeout_seconds=60)
    both = SchemaDeserializer(fresh)
    with moldau.Consumer(
        bootstrap,
        topics=[topic],
        auto_offset_reset="earliest",
        key_deserializer=both,
        value_deserializer=both,
    ) as consumer:
        assert read(consumer, 4) == [
            (1, {"user": "a"}),
            (2, {"user": "b"}),
            (3, None),
            (None, {"user": "c", "page": "home"}),
        ]
    assert sorted(server.stored.requests) == [f"GET /schemas/ids/{n}" for n in (1, 2, 3)]
    one_reader = SchemaDeserializer(fresh, reader_schema=click(PAGE))
    with moldau.Consumer(
        bootstrap, topics=[topic], auto_offset_reset="earliest", value_deserializer=one_reader
    ) as consumer:
        pages = [value["page"] for _, value in read(consumer, 4) if value]  # type: ignore[index]
    assert pages == ["?", "?", "home"]


def test_interceptors_see_each_record_once_also_the_first_of_a_topic(
    bootstrap: str, topic: str, registry: SchemaRegistry
) -> None:
    seen: list[object] = []

    class Watching(moldau.Interceptor):
        def on_send(self, record: moldau.OutgoingRecord) -> moldau.OutgoingRecord:
            seen.append(record.value)
            return record

    with moldau.Producer(
        bootstrap,
        value_serializer=SchemaSerializer(registry, click()),
        interceptors=[Watching()],
    ) as producer:
        producer.send(topic, {"user": "a"}).result(SECONDS)
        producer.send_many(topic, [{"user": "b"}]).result(SECONDS)

    assert seen == [{"user": "a"}, {"user": "b"}]


def test_iteration_and_streams_look_schemas_up_as_well(
    bootstrap: str, topic: str, registry: SchemaRegistry, server: RegistryServer
) -> None:
    serializer = SchemaSerializer(registry, click())
    with moldau.Producer(bootstrap, value_serializer=serializer) as producer:
        producer.send_many(topic, [{"user": str(n)} for n in range(5)]).result(SECONDS)

    def consumer() -> moldau.Consumer:
        fresh = SchemaDeserializer(SchemaRegistry(server.url, timeout_seconds=60))
        return moldau.Consumer(
            bootstrap, topics=[topic], auto_offset_reset="earliest", value_deserializer=fresh
        )

    with consumer() as one:
        assert next(iter(one)).value == {"user": "0"}
    with consumer() as two:
        (stream,) = two.streams(1)
        with stream:
            assert stream.poll(SECONDS)[0].value == {"user": "0"}


def test_tasks_write_and_read_while_the_loop_goes_on(
    bootstrap: str, topic: str, server: RegistryServer
) -> None:
    """The registry does not answer before the loop has had its turn."""
    turns = 0

    async def story() -> list[object]:
        nonlocal turns
        may_answer = threading.Event()

        async def tick() -> None:
            nonlocal turns
            while True:
                turns += 1
                may_answer.set()
                await asyncio.sleep(0.001)

        class Slow(SchemaRegistry):
            def _ask(self, *arguments: object, **more: object) -> object:
                may_answer.clear()
                assert may_answer.wait(SECONDS), "the loop waits for the registry"
                return super()._ask(*arguments, **more)  # type: ignore[arg-type]

        ticking = asyncio.create_task(tick())
        serializer = SchemaSerializer(Slow(server.url, timeout_seconds=60), click())
        async with moldau.AsyncProducer(bootstrap, value_serializer=serializer) as producer:
            with pytest.raises(TopicNotReadyError, match="serializers"):
                producer.send_nowait(topic, {"user": "a"})
            await (await producer.send(topic, {"user": "a"}))
            await producer.send_nowait(topic, {"user": "b"})
        reader = SchemaDeserializer(Slow(server.url, timeout_seconds=60))
        async with moldau.AsyncConsumer(
            bootstrap, topics=[topic], auto_offset_reset="earliest", value_deserializer=reader
        ) as consumer:
            found: list[object] = []
            async for record in consumer:
                found.append(record.value)
                if len(found) == 2:
                    break
        ticking.cancel()
        return found

    assert asyncio.run(story()) == [{"user": "a"}, {"user": "b"}]
    assert turns > 3


def test_what_cannot_be_read_is_told_with_its_offset_and_a_dead_registry_as_such(
    bootstrap: str, topic: str, server: RegistryServer
) -> None:
    SchemaRegistry(server.url).register(f"{topic}-value", click())
    with moldau.Producer(bootstrap) as producer:
        for value in (b"\0\0\0\0\1\2x", b"plain", b"\0\0\0\0\x63x"):
            producer.send(topic, value).result(SECONDS)
    reader = SchemaDeserializer(SchemaRegistry(server.url, timeout_seconds=60))
    with moldau.Consumer(
        bootstrap, topics=[topic], auto_offset_reset="earliest", value_deserializer=reader
    ) as consumer:
        assert read(consumer, 1) == [(None, {"user": "x"})]
        for offset, cause in ((1, "0x70"), (2, "has no schema 99")):
            with pytest.raises(RecordDeserializationError, match=cause) as caught:
                consumer.poll(SECONDS)
            assert caught.value.offset == offset
            consumer.seek(caught.value.partition, offset + 1)
    dead = SchemaDeserializer(SchemaRegistry("http://127.0.0.1:1", timeout_seconds=0.2))
    with (
        moldau.Consumer(
            bootstrap, topics=[topic], auto_offset_reset="earliest", value_deserializer=dead
        ) as consumer,
        pytest.raises(RegistryUnreachableError, match=r"127\.0\.0\.1:1"),
    ):
        consumer.poll(SECONDS)


def test_queues_look_schemas_up_as_well(
    bootstrap: str, topic: str, registry: SchemaRegistry, server: RegistryServer
) -> None:
    with moldau.Admin(bootstrap) as admin:
        reset = moldau.ConfigChange(name="share.auto.offset.reset", value="earliest")
        admin.alter_configs({moldau.ConfigResource.group(f"g{topic}"): [reset]})
    serializer = SchemaSerializer(registry, click())
    with moldau.Producer(bootstrap, value_serializer=serializer) as producer:
        producer.send_many(topic, [{"user": str(n)} for n in range(4)]).result(SECONDS)
    fresh = SchemaDeserializer(SchemaRegistry(server.url, timeout_seconds=60))
    with (
        moldau.Queue(bootstrap, group=f"g{topic}", topic=topic, value_deserializer=fresh) as queue,
        queue.next(SECONDS) as job,
    ):
        assert job.record.value == {"user": "0"}

    async def take() -> object:
        again = SchemaDeserializer(SchemaRegistry(server.url, timeout_seconds=60))
        async with (
            moldau.AsyncQueue(
                bootstrap, group=f"g{topic}", topic=topic, value_deserializer=again
            ) as queue,
            queue.next_batch(1, SECONDS) as jobs,
        ):
            return jobs[0].record.value

    assert asyncio.run(take()) == {"user": "1"}


def test_strategies_latest_and_schemas_that_have_to_be_there(
    bootstrap: str, topic: str, registry: SchemaRegistry
) -> None:
    with pytest.raises(SchemaNotFoundError, match=f"{topic}-value"):
        SchemaSerializer(registry).for_topic(topic, "value")
    with pytest.raises(SchemaNotFoundError):
        SchemaSerializer(registry, click(), auto_register=False).for_topic(topic, "value")
    by_record = SchemaSerializer(registry, click(), subject_strategy="record")
    by_record.for_topic(topic, "value")
    assert registry.subjects() == ["Click"]
    number = registry.register(f"{topic}-value", click(PAGE)).id
    latest = SchemaSerializer(registry).for_topic(topic, "value")
    assert latest({"user": "a", "page": "b"}) == b"\0\0\0\0\2\2a\2b"
    by_number = SchemaSerializer(registry, schema_id=number).for_topic("any", "value")
    assert by_number({"user": "a", "page": "b"}) == b"\0\0\0\0\2\2a\2b"
    assert by_number(None) is None
