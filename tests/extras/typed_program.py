"""A user's program, for type checkers: `make extras EXTRAS=types`. It is not run.

A line that ends with `# wrong` has a mistake that a checker has to find; all others are right.
"""
# ruff: noqa: T201

from __future__ import annotations

from datetime import UTC, datetime

import moldau
import moldau.testing
from moldau.errors import KafkaError, MoldauError, UnknownTopicError


def send(bootstrap: str) -> int:
    with moldau.Producer(bootstrap, linger_ms=20, value_serializer=str.encode) as producer:
        metadata = producer.send("clicks", "home", key=b"alice").result(30)
        producer.send(12, "home")  # wrong
        producer.flush("soon")  # wrong
    partition: str = metadata.partition  # wrong
    return metadata.offset + len(partition)


def read(bootstrap: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    with moldau.Consumer(bootstrap, group="readers", topics=["clicks"]) as consumer:
        consumer.seek_to_time(datetime.now(UTC))
        for record in consumer:
            found.append(record.key)
            record.offset.upper()  # wrong
            if record.offset > 10:
                break
        consumer.polls()  # wrong
    return found


def administrate(bootstrap: str) -> None:
    with moldau.Admin(bootstrap) as admin:
        made = admin.create_topics([moldau.NewTopic(name="clicks", partitions=3)])
        outcome = made["clicks"]
        if isinstance(outcome, KafkaError):
            print(outcome.code)
        moldau.NewTopic(name="clicks", partitions="three")  # wrong
        admin.create_topics("clicks")  # wrong


def work(bootstrap: str) -> None:
    with moldau.Queue(bootstrap, group="resizers", topic="photos") as queue, queue.next() as job:
        print(job.record.value, job.delivery_count + 1)
        job.finish()  # wrong


async def work_in_tasks(bootstrap: str) -> int:
    async with moldau.AsyncProducer(bootstrap) as producer:
        future = await producer.send("clicks", b"home")
        metadata = await future
    return metadata.offset


def test_clicks(moldau_broker: moldau.testing.RunningBroker) -> None:
    moldau_broker.create_topic("clicks", partitions=3)
    moldau_broker.create_topic("clicks", partitions="three")  # wrong
    try:
        send(moldau_broker.bootstrap)
    except UnknownTopicError as error:
        print(error.code)
    except MoldauError:
        raise
    assert moldau_broker.wait_for_records("clicks", 1)[0].value == b"home"
