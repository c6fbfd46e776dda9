"""The life of one `moldau produce`: input, records, progress, and the account at the end."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from moldau.cli.command_config import security_options
from moldau.cli.line_parser import Parser
from moldau.cli.line_source import read_lines
from moldau.cli.log_lines import warnings_shown
from moldau.cli.output import note, print_document
from moldau.cli.pace import Pace
from moldau.cli.progress import Progress
from moldau.cli.session import CLIENT_ID, garbage_collected_rarely, with_client
from moldau.client.blocking_producer import Producer
from moldau.client.record_futures import ManyFuture
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.config.client_options import ACKS_NONE
from moldau.errors import MoldauError, UnknownTopicError
from moldau.records.record import Headers

_PROMPT = "> "
_MAX_LINE_BYTES = 100 * 1024 * 1024
_BUFFER_BYTES = 8 * 1024 * 1024
_MAX_BLOCK_MS = 10 * 60 * 1000
_LAST_SECONDS = 10.0
"""How long what was read may take to be sent, once the command is to end."""
_SILENT_SECONDS = 1.0
"""How much of that passes before the wait is mentioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """What to send where."""

    topic: str
    file: Path | None
    parser: Parser
    headers: Headers  # for lines that say nothing of headers
    partition: int | None
    acks: int
    compression: str
    batch_bytes: int
    records_per_second: float | None
    bootstrap: str
    as_json: bool


def run_production(production: Production) -> None:
    """Send all input, then say how many records went where."""
    topic = with_client(
        production.bootstrap,
        lambda client: client.wait_until_topic_is_ready(production.topic, may_create=True),
    )
    if production.partition is not None:
        _require_partition(topic, production.partition)
    account = Account()
    with warnings_shown(), garbage_collected_rarely():
        producer = _make_producer(production)
        try:
            _Input(producer, account, production).send()
        finally:
            # All is confirmed by now, unless something went wrong: what is left is not waited for.
            producer.close(0.0)
            account.count_rest()
            _report(account, production)


def _make_producer(production: Production) -> Producer:
    return Producer(
        production.bootstrap,
        client_id=CLIENT_ID,
        acks=production.acks,
        compression_type=production.compression,
        batch_size=production.batch_bytes,
        # What a line may have is the topic's decision: max.message.bytes.
        max_request_size=_MAX_LINE_BYTES,
        # Lines need not be read much faster than they are sent: what is kept has to be found.
        buffer_memory=_BUFFER_BYTES,
        # Memory is waited for as long as anything in it may still be delivered.
        max_block_ms=_MAX_BLOCK_MS,
        **security_options(),  # type: ignore[arg-type]  # any option's value
    )


def _require_partition(topic: TopicMetadata, partition: int) -> None:
    count = len(topic.partitions)
    if partition >= count:
        raise UnknownTopicError(
            f"topic {topic.name!r} has no partition {partition}; it has {count}, counted from 0"
        )


class Account:
    """What has been confirmed of the records that were sent, in the order of sending."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()  # records in the log, by partition
        self.size_bytes = 0  # of the lines that are in the log
        self.sent_count = 0  # records, in the log or not
        self._under_way: deque[tuple[ManyFuture, int]] = deque()

    @property
    def missing_count(self) -> int:
        """Records that were sent, and of which it is not known that they are in the log."""
        return self.sent_count - self.counts.total()

    def add(self, sent: ManyFuture, record_count: int, size_bytes: int) -> None:
        self.sent_count += record_count
        self._under_way.append((sent, size_bytes))
        self.count()

    def count(self) -> None:
        """Count what has come to its end; raises what kept records from the log."""
        while self._under_way and self._under_way[0][0].done():
            self._count_oldest()

    def count_rest(self) -> None:
        """Count what there is, when nothing more will come."""
        while self._under_way:
            with contextlib.suppress(MoldauError):
                self._count_oldest()

    def _count_oldest(self) -> None:
        sent, size_bytes = self._under_way.popleft()
        for found in sent.delivered:
            self.counts[found.partition] += found.record_count
        failure = sent.exception(0)
        if failure is not None:
            raise failure
        self.size_bytes += size_bytes


class _Input:
    """Takes lines to a producer: parsed, at the pace that was asked for, with progress shown."""

    def __init__(self, producer: Producer, account: Account, production: Production):
        self._producer = producer
        self._account = account
        self._production = production
        input_bytes = _input_bytes(production.file)
        self._progress = Progress(
            input_bytes,
            has_end=input_bytes is not None,
            has_prompt=_is_typed(production.file),
        )
        self._line_count = 0
        self._read_bytes = 0
        rate = production.records_per_second
        self._pace = None if rate is None else Pace(rate, time.monotonic())

    def send(self) -> None:
        try:
            for lines in _open_input(self._production.file):
                if not lines:
                    self._finish()  # there is time to see whether all was taken
                elif self._pace is None:
                    self._send(lines)
                else:
                    self._send_slowly(lines, self._pace)
                self._show_progress()
            self._finish()
        except (KeyboardInterrupt, MoldauError):
            with contextlib.suppress(TimeoutError):
                self._finish_soon()
            raise
        finally:
            self._progress.clear()

    def _send(self, lines: Sequence[bytes]) -> None:
        size_bytes = sum(map(len, lines)) + len(lines)
        self._read_bytes += size_bytes
        production = self._production
        for parsed in production.parser.parse(lines, self._line_count + 1):
            given = parsed.partition
            sent = self._producer.send_many(
                production.topic,
                parsed.values,
                parsed.keys,
                partition=given if production.partition is None else production.partition,
                headers=production.headers,
            )
            self._account.add(sent, len(parsed.values), size_bytes)
            size_bytes = 0  # counted once, whatever the lines were divided into
        self._line_count += len(lines)

    def _send_slowly(self, lines: Sequence[bytes], pace: Pace) -> None:
        for line in lines:
            pause = pace.pause_before_next(time.monotonic())
            if pause:
                self._show_progress()
                time.sleep(pause)
            self._send((line,))

    def _finish(self) -> None:
        """Wait until all is taken."""
        self._producer.flush()
        self._account.count()

    def _finish_soon(self) -> None:
        """What was read is sent, if that is possible soon; a second Ctrl-C ends this, too."""
        try:
            self._producer.flush(_SILENT_SECONDS)
        except TimeoutError:
            self._progress.clear()
            rest = _LAST_SECONDS - _SILENT_SECONDS
            note(
                f"moldau: not all is confirmed; waiting {rest:g} seconds more (Ctrl-C: not at all)"
            )
            self._producer.flush(rest)

    def _show_progress(self) -> None:
        self._account.count()
        account = self._account
        self._progress.show(account.counts.total(), account.size_bytes, self._read_bytes)


def _open_input(file: Path | None) -> Iterator[Sequence[bytes]]:
    if file is not None:
        with file.open("rb", buffering=0) as stream:
            yield from read_lines(stream.fileno())
    elif _is_typed(file):
        yield from _prompt_lines()
    else:
        yield from read_lines(sys.stdin.fileno())


def _is_typed(file: Path | None) -> bool:
    return file is None and sys.stdin.isatty() and sys.stdout.isatty()


def _prompt_lines() -> Iterator[Sequence[bytes]]:
    """Lines typed by a person, each sent before the next prompt; Ctrl-D ends."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  # gives input() its editing and history
    while True:
        try:
            line = input(_PROMPT)
        except (EOFError, KeyboardInterrupt) as end:
            sys.stdout.write("\n")
            sys.stdout.flush()  # before what is said on stderr
            if isinstance(end, KeyboardInterrupt):
                raise
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


def _report(account: Account, production: Production) -> None:
    counts = {partition: account.counts[partition] for partition in sorted(account.counts)}
    if production.as_json:
        print_document(
            {
                "topic": production.topic,
                "records": account.counts.total(),
                "partitions": {str(partition): count for partition, count in counts.items()},
                "missing": account.missing_count,
                "confirmed": production.acks != ACKS_NONE,
            }
        )
        return
    note(describe_counts(production.topic, counts, confirmed=production.acks != ACKS_NONE))
    if account.missing_count:
        note(f"not confirmed: {_count_records(account.missing_count)}")


def describe_counts(topic: str, counts: dict[int, int], *, confirmed: bool) -> str:
    """The account of a session in one line."""
    total = sum(counts.values())
    where = ", ".join(f"{count:,} in partition {one}" for one, count in counts.items())
    if len(counts) == 1:
        where = f"partition {next(iter(counts))}"
    doubt = "" if confirmed else ", unconfirmed"
    return f"{_count_records(total)} sent to {topic}" + (f" ({where}{doubt})" if total else "")


def _count_records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"
