"""Our client of share groups, at Apache Kafka and at our broker: the same stories at both."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from bench.systems import SYSTEMS

import moldau
import moldau.testing
from moldau.client.admin.values import ConfigResource
from moldau.config.alterations import ConfigChange
from moldau.errors import (
    AcknowledgementError,
    ClientError,
    QueueEmptyError,
    RecordDeserializationError,
)
from support.command_line import Cli
from support.waiting import PATIENCE_SECONDS, eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "queue_workers.py"
SHORT_LOCK_MS = 2000
BROKER_SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.session.timeout.ms": "1000",
    "group.share.session.timeout.ms": "6000",
}
TAKER = """
import sys, moldau
queue = moldau.Queue(sys.argv[1], group=sys.argv[2], topic=sys.argv[3], fetch_max_wait_ms=100)
with queue.next_batch(int(sys.argv[4])) as jobs:
    print(len(jobs), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module", params=["kafka", "moldau"])
def share_bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A broker with share groups, or a skip that says why there is none."""
    if request.param == "moldau":
        with moldau.testing.broker(BROKER_SETTINGS) as broker:
            yield broker.bootstrap
        return
    system = replace(SYSTEMS["kafka-256m"], settings=BROKER_SETTINGS)
    obstacle = system.find_obstacle()
    if obstacle is not None:
        pytest.skip(obstacle)
    running = system.start(tmp_path_factory.mktemp("kafka"))
    try:
        yield running.bootstrap
    finally:
        running.close()


class Place:
    """A topic, and a share group that begins at its beginning."""

    def __init__(self, bootstrap: str, partitions: int = 2) -> None:
        self.bootstrap = bootstrap
        self.partitions = partitions
        self.topic = f"jobs-{uuid.uuid4().hex[:10]}"
        self.group = f"workers-{uuid.uuid4().hex[:10]}"
        with moldau.Admin(bootstrap) as admin:
            created = admin.create_topics([moldau.NewTopic(name=self.topic, partitions=partitions)])
            assert not any(isinstance(one, Exception) for one in created.values()), created
        self.set("share.auto.offset.reset", "earliest")

    def set(self, name: str, value: str) -> None:
        resource = ConfigResource.group(self.group)
        with moldau.Admin(self.bootstrap) as admin:
            done = admin.alter_configs({resource: [ConfigChange(name=name, value=value)]})
            assert done == {resource: None}

    def produce(self, *values: str) -> None:
        with moldau.Producer(self.bootstrap) as producer:
            for number, value in enumerate(values):
                producer.send(self.topic, value.encode(), partition=number % self.partitions)

    def queue(self, **options: object) -> moldau.Queue:
        return moldau.Queue(
            self.bootstrap,
            group=self.group,
            topic=self.topic,
            fetch_max_wait_ms=100,
            **options,  # type: ignore[arg-type]
        )

    def take_until(self, last: str) -> dict[str, int]:
        """Everything that another taker gets up to a value that is produced now, with delivery
        counts."""
        seen: dict[str, int] = {}
        self.produce(*[last] * self.partitions)
        found = 0
        with self.queue(confirm=True) as queue:
            while found < self.partitions:
                with queue.next(PATIENCE_SECONDS) as job:
                    value = text_of(job)
                    if value == last:
                        found += 1
                    else:
                        seen[value] = job.delivery_count
        return seen


def text_of(job: moldau.Job | moldau.AsyncJob) -> str:
    return (job.record.value or b"").decode()


@pytest.fixture
def place(share_bootstrap: str) -> Place:
    return Place(share_bootstrap)


@pytest.fixture
def narrow_place(share_bootstrap: str) -> Place:
    """One partition, which all members of the group are assigned to."""
    return Place(share_bootstrap, partitions=1)


def numbered(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def test_many_threads_take_each_record_once(place: Place) -> None:
    place.produce(*numbered(400))
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    with place.queue() as queue:

        def work() -> None:
            while sum(seen.values()) < 400:
                try:
                    with queue.next(timeout=1) as job:
                        assert job.delivery_count == 1
                        with lock:
                            seen[text_of(job)] += 1
                except QueueEmptyError:
                    continue

        with ThreadPoolExecutor(4) as pool:
            for task in [pool.submit(work) for _ in range(4)]:
                task.result(2 * PATIENCE_SECONDS)

    assert seen == Counter(numbered(400))
    assert place.take_until("end") == {}


def test_an_exception_gives_the_job_back_and_says_so(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.produce("a")
    with place.queue() as queue:
        with pytest.raises(ZeroDivisionError), queue.next(PATIENCE_SECONDS) as job:
            _ = 1 // 0
        assert "was released after ZeroDivisionError" in caplog.text
        with queue.next(PATIENCE_SECONDS) as job:
            assert (text_of(job), job.delivery_count) == ("a", 2)
    assert place.take_until("end") == {}


def test_each_job_of_a_batch_may_have_its_own_outcome(place: Place) -> None:
    place.produce(*numbered(12))
    seen: list[str] = []
    with place.queue(confirm=True, max_poll_records=100) as queue:
        while len(seen) < 12:
            with queue.next_batch(12, PATIENCE_SECONDS) as jobs:
                for job in jobs:
                    number = int(text_of(job))
                    seen.append(str(number))
                    if number % 3 == 1:
                        job.reject()
                    elif number % 3 == 2:
                        job.release()
                    if number % 3 == 2 and len(seen) < 12:
                        continue
        # Those that were released may have come to this taker again.
    assert set(seen) <= set(numbered(12))
    left = place.take_until("end")
    assert set(left) <= {"2", "5", "8", "11"}
    assert all(count >= 2 for count in left.values())


def test_closing_releases_what_was_not_finished(place: Place) -> None:
    place.produce(*numbered(20))
    with place.queue() as queue:
        taken = [queue.next(PATIENCE_SECONDS) for _ in range(3)]
    with pytest.raises(ClientError):
        taken[0].accept()
    assert place.take_until("end").keys() == set(numbered(20))


def test_a_block_keeps_its_lock_for_as_long_as_it_runs(narrow_place: Place) -> None:
    lock_ms = 2 * SHORT_LOCK_MS  # on a busy machine it is renewed late
    narrow_place.set("share.record.lock.duration.ms", str(lock_ms))
    narrow_place.produce("long")
    with narrow_place.queue(confirm=True) as queue, narrow_place.queue() as other:
        with queue.next(PATIENCE_SECONDS) as job:
            # Others wait for longer than a lock lasts, and get nothing.
            with pytest.raises(QueueEmptyError):
                other.next(timeout=1.5 * lock_ms / 1000)
            job.renew()
        assert job.is_finished
    assert narrow_place.take_until("end") == {}


def test_who_is_too_late_hears_of_it(narrow_place: Place) -> None:
    narrow_place.set("share.record.lock.duration.ms", str(SHORT_LOCK_MS))
    narrow_place.produce("slow")
    with narrow_place.queue() as queue, narrow_place.queue(confirm=True) as other:
        late = queue.next(PATIENCE_SECONDS)
        with other.next(PATIENCE_SECONDS) as job:
            assert (text_of(job), job.delivery_count) == ("slow", 2)
            with pytest.raises(AcknowledgementError, match="may be delivered again"):
                late.accept(wait=True)


def test_without_waiting_a_function_hears_of_it(narrow_place: Place) -> None:
    narrow_place.set("share.record.lock.duration.ms", str(SHORT_LOCK_MS))
    narrow_place.produce("slow")
    failed: list[bytes | None] = []

    def listen(record: moldau.ConsumerRecord, error: Exception) -> None:
        failed.append(record.value)

    with (
        narrow_place.queue(confirm=True) as other,
        narrow_place.queue(on_unacknowledged=listen) as queue,
    ):
        late = queue.next(PATIENCE_SECONDS)
        with other.next(PATIENCE_SECONDS):
            late.accept()
            eventually(lambda: failed == [b"slow"], lambda: f"the word did not arrive: {failed}")


def test_what_a_killed_taker_had_goes_to_others(place: Place) -> None:
    place.set("share.record.lock.duration.ms", str(SHORT_LOCK_MS))
    place.produce(*numbered(30))
    command = [sys.executable, "-c", TAKER, place.bootstrap, place.group, place.topic, "10"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as taker:
        assert taker.stdout is not None
        assert int(taker.stdout.readline()) > 0
        taker.send_signal(signal.SIGKILL)
        taker.wait(PATIENCE_SECONDS)
    assert place.take_until("end").keys() == set(numbered(30))


def test_a_loop_accepts_by_coming_for_the_next_and_releases_when_it_is_left(place: Place) -> None:
    place.produce("first")
    with place.queue() as queue:
        jobs = iter(queue)
        assert text_of(next(jobs)) == "first"
        place.produce("second")
        assert text_of(next(jobs)) == "second"
        jobs.close()  # type: ignore[attr-defined]
    assert place.take_until("end") == {"second": 2}


def test_values_are_deserialized_and_what_cannot_be_read_is_released(place: Place) -> None:
    place.produce("7")
    with place.queue(value_deserializer=int) as queue, queue.next(PATIENCE_SECONDS) as job:
        assert job.record.value == 7  # type: ignore[comparison-overlap]
    place.produce("seven")
    with (
        place.queue(value_deserializer=int) as queue,
        pytest.raises(RecordDeserializationError, match="it was released"),
    ):
        queue.next(PATIENCE_SECONDS)
    assert place.take_until("end").keys() == {"seven"}


def test_a_job_is_finished_once(place: Place) -> None:
    place.produce("a")
    with place.queue() as queue:
        job = queue.next(PATIENCE_SECONDS)
        job.accept()
        with pytest.raises(ClientError, match="finished before: accept"):
            job.release()


def test_many_tasks_take_from_one_queue(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "moldau")
    place.produce(*numbered(200))
    seen: Counter[str] = Counter()

    async def run() -> None:
        async with moldau.AsyncQueue(
            place.bootstrap, group=place.group, topic=place.topic, fetch_max_wait_ms=100
        ) as queue:

            async def one_by_one() -> None:
                while sum(seen.values()) < 200:
                    try:
                        async with queue.next(timeout=1) as job:
                            seen[text_of(job)] += 1
                            await asyncio.sleep(0)
                    except QueueEmptyError:
                        continue

            async def in_batches() -> None:
                while sum(seen.values()) < 200:
                    async with queue.next_batch(10, timeout=1) as jobs:
                        seen.update(text_of(job) for job in jobs)

            work = (one_by_one(), one_by_one(), in_batches(), in_batches())
            await asyncio.wait_for(asyncio.gather(*work), 2 * PATIENCE_SECONDS)

    asyncio.run(run())
    assert seen == Counter(numbered(200))
    assert place.take_until("end") == {}


def test_an_asynchronous_job_can_be_awaited_confirmed_and_renewed(place: Place) -> None:
    place.produce("a", "b")

    async def run() -> list[str]:
        async with moldau.AsyncQueue(
            place.bootstrap, group=place.group, topic=place.topic, confirm=True
        ) as queue:
            first = await queue.next(PATIENCE_SECONDS)
            await first.renew()
            await first.accept()
            async for job in queue:
                await job.reject()
                return [text_of(first), text_of(job)]
        return []

    assert sorted(asyncio.run(run())) == ["a", "b"]
    assert place.take_until("end") == {}


def test_the_command_line_takes_and_gives_back(
    narrow_place: Place, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    cli = Cli(narrow_place.bootstrap, capsysbinary)
    narrow_place.produce(*numbered(6))
    take = ("consume", narrow_place.topic, "--queue", narrow_place.group)
    limits = ("--max-messages", "4", "--timeout-ms", "30000")
    rows = cli.json_lines(*take, *limits, "--release")
    assert [(row["value"], row["delivery_count"]) for row in rows] == [
        ("0", 1),
        ("1", 1),
        ("2", 1),
        ("3", 1),
    ]
    assert cli(*take, *limits).splitlines() == ["0", "1", "2", "3"]
    left = narrow_place.take_until("end")
    assert left.keys() == {"4", "5"}
    cli("consume", "nowhere", "--queue", narrow_place.group, code=1)
    assert "there is no topic 'nowhere'" in cli.err


def test_the_example_runs(share_bootstrap: str) -> None:
    command = [sys.executable, str(EXAMPLE), share_bootstrap]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS, check=True
    )
    assert "40 thumbnails were made by 4 workers" in done.stdout


def test_a_queue_says_what_is_wrong_with_its_arguments() -> None:
    with pytest.raises(moldau.errors.ConfigurationError, match="group"):
        moldau.Queue("127.0.0.1:1", group="", topic="t")
    with pytest.raises(moldau.errors.ConfigurationError, match="max_poll_record"):
        moldau.Queue("127.0.0.1:1", group="g", topic="t", max_poll_record=5)
