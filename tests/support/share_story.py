"""Takers of a share group as processes of Java's own client, their diaries, and what must hold."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import Producer

from moldau.client.admin.values import ConfigChange, ConfigResource, ShareGroupOffset
from moldau.client.blocking import Admin
from support.topics import fresh_name
from support.waiting import PATIENCE_SECONDS, eventually


class Delivery(NamedTuple):
    """A record as a taker got it."""

    taker: str
    partition: int
    offset: int
    value: str
    count: int
    said: str


class Taker:
    """A process that belongs to the group, and the diary it keeps."""

    def __init__(self, story: ShareStory, mode: str, number: int) -> None:
        self.name = f"{mode}-{number}"
        self._path = story.folder / f"{self.name}.jsonl"
        self._path.touch()
        command = [*story.command, mode]
        for name, value in {
            "bootstrap": story.bootstrap,
            "topic": story.topic,
            "group": story.group,
            "diary": str(self._path),
        }.items():
            command += [f"--{name}", value]
        self._errors = (story.folder / f"{self.name}.err").open("w+")
        self._process = subprocess.Popen(command, stdout=self._errors, stderr=self._errors)

    @property
    def events(self) -> list[dict[str, Any]]:
        whole = self._path.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    @property
    def deliveries(self) -> Iterator[Delivery]:
        for event in self.events:
            if event["event"] == "record":
                yield Delivery(
                    self.name,
                    event["partition"],
                    event["offset"],
                    event["value"],
                    event["count"],
                    event["said"],
                )

    def acknowledged(self, error: str = "") -> set[tuple[int, int]]:
        """Partition and offset of what the broker has confirmed, or refused with an error."""
        return {
            (event["partition"], offset)
            for event in self.events
            if event["event"] == "acknowledged" and event["error"] == error
            for offset in event["offsets"]
        }

    @property
    def output(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_it_has(self, count: int) -> None:
        eventually(
            lambda: len(list(self.deliveries)) >= count or not self.is_alive,
            lambda: f"{self.name} got {count} records: {self.events[-3:]} {self.output[-2000:]}",
        )
        assert self.is_alive, self.output

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def leave(self) -> None:
        """As a program that is asked to end."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(PATIENCE_SECONDS) == 0, f"{self.name} failed: {self.output}"

    def end(self) -> None:
        self.kill()
        self._errors.close()


class ShareStory:
    """One share group, and the records that flow to it."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        command: Sequence[str],
        topic: str,
        settings: Mapping[str, str],
    ) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self.command = command
        self.topic = topic
        self.group = fresh_name("takers")
        self.takers: list[Taker] = []
        self.sent: list[str] = []
        with Admin(bootstrap) as admin:
            wanted = {"share.auto.offset.reset": "earliest", **settings}
            changes = [ConfigChange(name=name, value=value) for name, value in wanted.items()]
            answers = admin.alter_configs({ConfigResource.group(self.group): changes})
            assert [*answers.values()] == [None]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for taker in self.takers:
            taker.end()

    def join(self, mode: str) -> Taker:
        taker = Taker(self, mode, len(self.takers))
        self.takers.append(taker)
        return taker

    def produce(self, values: Iterable[str]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 2})
        for value in values:
            producer.produce(self.topic, value)
            self.sent.append(value)
            if len(self.sent) % 25 == 0:
                producer.flush(PATIENCE_SECONDS)  # a batch
        assert producer.flush(PATIENCE_SECONDS) == 0

    @property
    def deliveries(self) -> list[Delivery]:
        return [one for taker in self.takers for one in taker.deliveries]

    @property
    def accepted(self) -> Counter[str]:
        return Counter(one.value for one in self.deliveries if one.said == "ACCEPT")

    def wait_until_all_are_done(self) -> None:
        """Every record was accepted by a taker, and the group's own account has none left.

        Where a broker was killed, a taker may never hear that it was: the state was stored, and the
        answer lost. Then nobody confirms it, and it must not come again.
        """
        with Admin(self.bootstrap) as admin:

            def is_done() -> bool:
                offsets = admin.list_share_group_offsets(self.group)
                accepted = {one.value for one in self.deliveries if one.said == "ACCEPT"}
                return accepted >= set(self.sent) and all(
                    isinstance(one, ShareGroupOffset) and one.lag == 0 for one in offsets.values()
                )

            eventually(
                is_done,
                lambda: (
                    f"what is left: {admin.list_share_group_offsets(self.group)} "
                    f"{[taker.output[-800:] for taker in self.takers]}"
                ),
                3 * PATIENCE_SECONDS,
            )

    def wait_until_all_are_confirmed(self) -> None:
        """Every record was dealt with for good, and some broker has said so."""

        def confirmed() -> set[str]:
            by_place = {(one.partition, one.offset): one for one in self.deliveries}
            done = {
                place
                for taker in self.takers
                for place in taker.acknowledged()
                if place in by_place
            }
            return {by_place[place].value for place in done}

        def is_done() -> bool:
            return confirmed() >= set(self.sent)

        eventually(
            is_done,
            lambda: (
                f"missing: {sorted(set(self.sent) - confirmed())[:9]} "
                f"{[taker.output[-800:] for taker in self.takers]}"
            ),
            3 * PATIENCE_SECONDS,
        )
