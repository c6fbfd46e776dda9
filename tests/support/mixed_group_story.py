"""The story of a group whose members are processes of several libraries, and what must hold.

Members come, leave and are killed while records flow. Each keeps a diary, as does
`support.mixed_group_member`. From those it is checked afterwards that every record was dealt with,
that no partition had two owners at a time, and that committed offsets only grew.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from moldau.client.blocking import Admin
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from support import confluent_client
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS, eventually

TESTS = Path(__file__).parent.parent
PARTITIONS = 6
NO_COMMANDS: Mapping[str, Sequence[str]] = {}


class Member:
    """A process that belongs to the group, and the diary it keeps."""

    def __init__(self, story: Story, client: str, number: int) -> None:
        self.name = f"{client}-{number}"
        self._path = story.folder / f"{self.name}.jsonl"
        self._path.touch()
        self.killed_at: float | None = None
        own = [sys.executable, "-m", "support.mixed_group_member"]
        command = [*story.commands.get(client, own), client]
        for name, value in {
            "bootstrap": story.bootstrap,
            "topic": story.topic,
            "group": story.group,
            "assignor": story.assignor,
            "diary": str(self._path),
        }.items():
            command += [f"--{name}", value]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        self._errors = (story.folder / f"{self.name}.err").open("w+")
        self._process = subprocess.Popen(
            command, env=environment, stdout=self._errors, stderr=self._errors
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        written = self._path.read_text().splitlines(keepends=True)
        # The last line may be half there: the member writes while this reads, or was killed at it.
        return [json.loads(line) for line in written if line.endswith("\n")]

    def wait_until_it_owns_something(self) -> None:
        eventually(
            lambda: self._owned() or not self.is_alive, lambda: f"{self.name} owns something"
        )
        assert self.is_alive, f"{self.name} ended: {self.output}"

    def _owned(self) -> set[int]:
        owned: set[int] = set()
        for event in self.events:
            if event["event"] == "got":
                owned |= set(event["partitions"])
            elif event["event"] == "gave up":
                owned -= set(event["partitions"])
        return owned

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def output(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.killed_at = time.monotonic()

    def leave(self) -> None:
        """As a program that is asked to end."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_SECONDS) == 0, f"{self.name} failed: {self.output}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()


class Story:
    """One group, the records that flow to it, and what was committed meanwhile."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        assignor: str,
        *,
        topic: str | None = None,
        commands: Mapping[str, Sequence[str]] = NO_COMMANDS,
    ) -> None:
        self.bootstrap = bootstrap
        self.commands = commands
        """To start members of libraries that are not Python's, by the names of the clients."""
        self.folder = folder
        self.assignor = assignor
        self.group = f"mixed-{assignor}"
        self.topic = topic or Topics(bootstrap).create(partitions=PARTITIONS)
        self.members: list[Member] = []
        self.sent: set[str] = set()
        self.committed: dict[int, list[int]] = defaultdict(list)
        self.watching_errors: list[str] = []
        self._producing = threading.Event()
        self._watching = threading.Event()
        self._producer = threading.Thread(target=self._produce)
        self._watcher = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._producer.start()
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._producing.set()
        self._watching.set()
        self._producer.join()
        self._watcher.join()
        for member in self.members:
            member.end()

    def join(self, *clients: str) -> list[Member]:
        """Start members; over when each of them has got partitions."""
        joined = [Member(self, client, len(self.members) + n) for n, client in enumerate(clients)]
        self.members += joined
        for member in joined:
            member.wait_until_it_owns_something()
        return joined

    def let_flow(self, count: int) -> None:
        """Until so many more records are sent."""
        target = len(self.sent) + count
        eventually(lambda: len(self.sent) >= target, lambda: f"{target} records sent")

    def finish(self) -> None:
        """Send no more, wait until everything is committed, and have all members leave."""
        self._producing.set()
        self._producer.join()
        ends = self._end_offsets()
        eventually(lambda: self._latest() == ends, lambda: f"{ends} committed: {self._latest()}")
        for member in self.members:
            if member.is_alive:
                member.leave()
        self._watching.set()
        self._watcher.join()

    def _latest(self) -> dict[int, int]:
        return {partition: seen[-1] for partition, seen in self.committed.items()}

    def _end_offsets(self) -> dict[int, int]:
        with Admin(self.bootstrap) as admin:
            wanted = {TopicPartition(self.topic, index): -1 for index in range(PARTITIONS)}
            found = admin.list_offsets(wanted)
            return {one.partition: at.offset for one, at in found.items()}  # type: ignore[union-attr]

    def _produce(self) -> None:
        producer = confluent_client.producer(self.bootstrap, enable_idempotence=True)
        number = 0
        while not self._producing.is_set():
            value = str(number)
            producer.produce(self.topic, value.encode(), partition=number % PARTITIONS)
            self.sent.add(value)
            number += 1
            producer.poll(0)
            self._producing.wait(0.002)
        assert not producer.flush(PATIENCE_SECONDS)

    def _watch(self) -> None:
        with Admin(self.bootstrap) as admin:
            while not self._watching.is_set():
                for partition, offset in admin.list_group_offsets(self.group).items():
                    if isinstance(offset, KafkaError):
                        self.watching_errors.append(str(offset))
                    else:
                        self.committed[partition.partition].append(offset.offset)
                self._watching.wait(0.05)


class Tenure(NamedTuple):
    """The time in which a member owned a partition."""

    begin: float
    end: float
    member: str


def tenures_of(member: Member) -> Iterator[tuple[int, Tenure]]:
    began: dict[int, float] = {}
    for event in member.events:
        if event["event"] == "got":
            for partition in event["partitions"]:
                assert partition not in began, f"{member.name} got {partition} twice"
                began[partition] = event["at"]
        elif event["event"] == "gave up":
            for partition in event["partitions"]:
                if partition in began:
                    yield partition, Tenure(began.pop(partition), event["at"], member.name)
    for partition, begin in began.items():
        end = member.killed_at if member.killed_at is not None else member.events[-1]["at"]
        yield partition, Tenure(begin, end, member.name)


def assert_one_owner_at_a_time(members: Sequence[Member]) -> None:
    tenures: dict[int, list[Tenure]] = defaultdict(list)
    for member in members:
        for partition, tenure in tenures_of(member):
            tenures[partition].append(tenure)
    for partition, some in tenures.items():
        ordered = sorted(some)
        for earlier, later in pairwise(ordered):
            assert earlier.end <= later.begin, f"partition {partition}: {earlier} and {later}"


def assert_records_are_dealt_with_by_owners(members: Sequence[Member]) -> None:
    for member in members:
        tenures: dict[int, list[Tenure]] = defaultdict(list)
        for partition, tenure in tenures_of(member):
            tenures[partition].append(tenure)
        for event in member.events:
            if event["event"] == "record":
                owned = tenures[event["partition"]]
                assert any(one.begin <= event["at"] <= one.end for one in owned), (
                    member.name,
                    event,
                )


def assert_everything_was_dealt_with(story: Story) -> None:
    dealt_with = {
        event["value"]
        for member in story.members
        for event in member.events
        if event["event"] == "record"
    }
    assert story.sent <= dealt_with, f"lost: {sorted(story.sent - dealt_with)[:10]}"


def assert_commits_never_go_back(story: Story) -> None:
    assert not story.watching_errors
    for partition, seen in story.committed.items():
        assert seen == sorted(seen), f"partition {partition}: {seen}"


def check(story: Story) -> None:
    assert_everything_was_dealt_with(story)
    assert_one_owner_at_a_time(story.members)
    assert_records_are_dealt_with_by_owners(story.members)
    assert_commits_never_go_back(story)
