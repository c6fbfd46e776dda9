"""The life of one `moldau produce`: input, records, progress, and the account at the end."""

from __future__ import annotations

import contextlib
import os
import random
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from moldau.cli.line_parser import ParsedLine, Parser
from moldau.cli.line_source import read_lines
from moldau.cli.output import note, print_document
from moldau.cli.pace import Pace
from moldau.cli.produce_session import ProduceSession
from moldau.cli.progress import Progress
from moldau.cli.session import client_settings
from moldau.client.batch_sender import BatchSender, SendSettings
from moldau.client.cluster_client import ClusterClient
from moldau.client.loop_thread import LoopThread
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.partitioners import StickyPartitioner
from moldau.config.client_options import ACKS_NONE
from moldau.errors import UnknownTopicError
from moldau.records.compression import Codec
from moldau.records.record import Headers, NewRecord

_PROMPT = "> "


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """What to send where."""

    topic: str
    file: Path | None
    parser: Parser
    headers: Headers  # before those that a line has of its own
    partition: int | None
    acks: int
    compression: str
    batch_bytes: int
    records_per_second: float | None
    bootstrap: str
    as_json: bool


def run_production(production: Production) -> None:
    """Send all input, then say how many records went where."""
    with LoopThread() as loop:
        client = ClusterClient(production.bootstrap, client_settings())
        try:
            topic = loop.run(client.wait_until_topic_is_ready(production.topic, may_create=True))
            if production.partition is not None:
                _require_partition(topic, production.partition)
            session = _make_session(loop, client, topic, production)
            try:
                _Input(session, topic, production).send()
            finally:
                _report(session, production)
        finally:
            loop.run(client.close())


def _make_session(
    loop: LoopThread, client: ClusterClient, topic: TopicMetadata, production: Production
) -> ProduceSession:
    settings = SendSettings(acks=production.acks, codec=Codec.parse(production.compression))
    return ProduceSession(
        loop,
        BatchSender(client, settings),
        topic.name,
        partition_count=len(topic.partitions),
        available=topic.partitions_with_leader(),
        partitioner=StickyPartitioner(random.randrange),
        fixed_partition=production.partition,
        batch_bytes=production.batch_bytes,
    )


def _require_partition(topic: TopicMetadata, partition: int) -> None:
    count = len(topic.partitions)
    if partition >= count:
        raise UnknownTopicError(
            f"topic {topic.name!r} has no partition {partition}; it has {count}, counted from 0"
        )


class _Input:
    """Takes lines to a session: parsed, at the pace that was asked for, with progress shown."""

    def __init__(self, session: ProduceSession, topic: TopicMetadata, production: Production):
        self._session = session
        self._topic = topic
        self._production = production
        self._progress = Progress(_input_bytes(production.file))
        self._line_count = 0
        self._read_bytes = 0
        rate = production.records_per_second
        self._pace = None if rate is None else Pace(rate, time.monotonic())

    def send(self) -> None:
        try:
            for lines in _open_input(self._production.file):
                for line in lines:
                    self._send_line(line)
                if not lines:
                    self._session.finish()  # there is time to see whether all was taken
                self._show_progress()
            self._session.finish()
        except KeyboardInterrupt:
            self._session.finish()  # what was read is sent; a second Ctrl-C ends this, too
            raise
        finally:
            self._progress.clear()

    def _send_line(self, line: bytes) -> None:
        self._line_count += 1
        self._read_bytes += len(line) + 1
        parsed = self._production.parser.parse(line, self._line_count)
        if parsed.partition is not None:
            _require_partition(self._topic, parsed.partition)
        if self._pace is not None:
            self._keep(self._pace)
        self._session.add(self._make_record(parsed), parsed.partition)

    def _make_record(self, parsed: ParsedLine) -> NewRecord:
        timestamp_ms = parsed.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        headers = self._production.headers
        if parsed.headers:
            headers += parsed.headers
        return NewRecord(timestamp_ms, parsed.key, parsed.value, headers)

    def _keep(self, pace: Pace) -> None:
        pause = pace.pause_before_next(time.monotonic())
        if pause:
            self._session.flush()
            self._show_progress()
            time.sleep(pause)

    def _show_progress(self) -> None:
        session = self._session
        self._progress.show(session.record_count, session.taken_bytes, self._read_bytes)


def _open_input(file: Path | None) -> Iterator[Sequence[bytes]]:
    if file is not None:
        with file.open("rb", buffering=0) as stream:
            yield from read_lines(stream.fileno())
    elif sys.stdin.isatty() and sys.stdout.isatty():
        yield from _prompt_lines()
    else:
        yield from read_lines(sys.stdin.fileno())


def _prompt_lines() -> Iterator[Sequence[bytes]]:
    """Lines typed by a person, each sent before the next prompt; Ctrl-D ends."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # gives input() its editing and history
    while True:
        try:
            line = input(_PROMPT)
        except EOFError:
            sys.stdout.write("\n")
            return
        yield (line.encode(errors="surrogateescape"),)
        yield ()


def _input_bytes(file: Path | None) -> int | None:
    """How long the input is, if that can be known: of a file, named or behind stdin."""
    try:
        found = os.fstat(sys.stdin.fileno()) if file is None else file.stat()
    except (OSError, ValueError):  # stdin may be closed, or be no file at all
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _report(session: ProduceSession, production: Production) -> None:
    counts = {partition: session.counts[partition] for partition in sorted(session.counts)}
    if production.as_json:
        print_document(
            {
                "topic": production.topic,
                "records": session.record_count,
                "partitions": {str(partition): count for partition, count in counts.items()},
                "confirmed": production.acks != ACKS_NONE,
            }
        )
        return
    note(describe_counts(production.topic, counts, confirmed=production.acks != ACKS_NONE))


def describe_counts(topic: str, counts: dict[int, int], *, confirmed: bool) -> str:
    """The account of a session in one line."""
    total = sum(counts.values())
    records = "1 record" if total == 1 else f"{total:,} records"
    where = ", ".join(f"{count:,} in partition {one}" for one, count in counts.items())
    if len(counts) == 1:
        where = f"partition {next(iter(counts))}"
    doubt = "" if confirmed else ", unconfirmed"
    return f"{records} sent to {topic}" + (f" ({where}{doubt})" if total else "")
