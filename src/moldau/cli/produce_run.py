"""The life of one `moldau produce`: input, records, progress, and the account at the end."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moldau.cli.line_parser import Parser
from moldau.cli.options import security_options
from moldau.cli.output import Progress, note, print_document
from moldau.cli.reporting import warnings_shown
from moldau.cli.session import CLIENT_ID, made_for_millions, with_client
from moldau.client.blocking import Producer
from moldau.client.cluster import ClusterClient
from moldau.client.producer.produce_result import ManyFuture
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.config.client_options import ACKS_NONE
from moldau.config.option import suggest
from moldau.errors import BatchTooLargeError, MoldauError, RecordTooLargeError, UnknownTopicError
from moldau.records.lines import LINE_END, TextLines
from moldau.records.record import Headers

_PROMPT = "> "
_MAX_LINE_BYTES = 100 * 1024 * 1024
_BUFFER_BYTES = 8 * 1024 * 1024
_MAX_BLOCK_MS = 10 * 60 * 1000
_LAST_SECONDS = 10.0
"""How long what was read may take to be sent, once the command is to end."""
_GRAIN_SECONDS = 0.005
"""Shorter pauses are saved up: sleeping is not precise enough for them."""

_SILENT_SECONDS = 1.0
"""How much of that passes before the wait is mentioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Production:
    """What to send where."""

    topic: str
    file: Path | None
    record_files: tuple[Path, ...]  # each one record; then `file` is not read
    delimiter: bytes  # between records that are read from one stream
    parser: Parser
    headers: Headers  # for lines that say nothing of headers
    partition: int | None
    acks: int
    compression: str
    batch_bytes: int
    records_per_second: float | None
    bootstrap: str
    as_json: bool

    def name_input(self, numbers: range) -> str:
        """Where records of these numbers came from."""
        if self.record_files:
            return str(self.record_files[numbers[0] - 1])
        return name_lines(numbers)


def run_production(production: Production) -> None:
    """Send all input, then say how many records went where."""
    topic = with_client(production.bootstrap, partial(_find_topic, production.topic))
    if production.partition is not None:
        _require_partition(topic, production.partition)
    account = Account(production.name_input)
    with warnings_shown(), made_for_millions():
        producer = _make_producer(production)
        try:
            _Input(producer, account, production).send()
        finally:
            # All is confirmed by now, unless something went wrong: what is left is not waited for.
            producer.close(0.0)
            account.count_rest()
            _report(account, production)


async def _find_topic(name: str, client: ClusterClient) -> TopicMetadata:
    """The topic; where the cluster makes one of that name, that is said: it may be misspelt."""
    found = (await client.retry(lambda: client.metadata.refresh((name,)))).topics[name]
    is_missing = isinstance(found.error, UnknownTopicError)
    others = (await client.metadata.refresh()).topics if is_missing else ()
    topic = await client.wait_until_topic_is_ready(name, may_create=True)
    if is_missing:
        count = len(topic.partitions)
        note(
            f"there was no topic {name}: it was created, with {count} "
            f"partition{'' if count == 1 else 's'}{suggest(name, others)}"
        )
    return topic


def _make_producer(production: Production) -> Producer:
    return Producer(
        production.bootstrap,
        client_id=CLIENT_ID,
        acks=production.acks,
        compression_type=production.compression,
        batch_size=production.batch_bytes,
        # What a line may have is the topic's decision: max.message.bytes.
        max_request_size=_MAX_LINE_BYTES,
        # TextLines need not be read much faster than they are sent: what is kept has to be found.
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


class _Sent(NamedTuple):
    """Lines that were sent together."""

    future: ManyFuture
    numbers: range
    size_bytes: int
    in_order: bool

    @property
    def refused_numbers(self) -> range:
        """Of the first line that was not delivered; of all of them where that is not known."""
        if not self.in_order:
            return self.numbers
        place = self.future.delivered_before_failure
        return self.numbers[place : place + 1]


def name_lines(numbers: range) -> str:
    """As messages say it."""
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    return f"one of the lines {numbers[0]} to {numbers[-1]}"


class Account:
    """What has been confirmed of the records that were sent, in the order of sending."""

    def __init__(self, name: Callable[[range], str] = name_lines) -> None:
        self._name = name
        self.counts: Counter[int] = Counter()  # records in the log, by partition
        self.size_bytes = 0  # of the lines that are in the log
        self.sent_count = 0  # records, in the log or not
        self._under_way: deque[_Sent] = deque()

    @property
    def missing_count(self) -> int:
        """Records that were sent, and of which it is not known that they are in the log."""
        return self.sent_count - self.counts.total()

    def add(
        self, future: ManyFuture, numbers: range, size_bytes: int, *, in_order: bool = True
    ) -> None:
        """Lines of these numbers were sent; without keys they went into batches in their order."""
        self.sent_count += len(numbers)
        self._under_way.append(_Sent(future, numbers, size_bytes, in_order))
        self.count()

    def count(self) -> None:
        """Count what has come to its end; raises what kept records from the log."""
        while self._under_way and self._under_way[0].future.done():
            self._count_oldest()

    def count_rest(self) -> None:
        """Count what there is, when nothing more will come."""
        while self._under_way:
            with contextlib.suppress(MoldauError):
                self._count_oldest()

    def _count_oldest(self) -> None:
        sent = self._under_way.popleft()
        for found in sent.future.delivered:
            self.counts[found.partition] += found.record_count
        failure = sent.future.exception(0)
        if isinstance(failure, BatchTooLargeError):
            raise BatchTooLargeError(f"{self._name(sent.refused_numbers)}: {failure}") from failure
        if failure is not None:
            raise failure
        self.size_bytes += sent.size_bytes


class Pace:
    """Lets `per_second` records pass, counted from its making. A rule: times in, pauses out."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._began = now
        self._passed = 0

    def pause_before_next(self, now: float) -> float:
        """Seconds to wait before the next record; 0 when it is due, or nearly."""
        due = self._began + self._passed / self._per_second
        self._passed += 1
        return due - now if due - now > _GRAIN_SECONDS else 0.0


class _Input:
    """Takes lines to a producer: parsed, at the pace that was asked for, with progress shown."""

    def __init__(self, producer: Producer, account: Account, production: Production):
        self._producer = producer
        self._account = account
        self._production = production
        input_bytes = _input_bytes(production)
        self._progress = Progress(
            input_bytes,
            has_end=input_bytes is not None,
            has_prompt=_is_typed(production),
        )
        self._line_count = 0
        self._read_bytes = 0
        rate = production.records_per_second
        self._pace = None if rate is None else Pace(rate, time.monotonic())

    def send(self) -> None:
        try:
            for lines in _open_input(self._production):
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
        size_bytes = _size_of(lines)
        self._read_bytes += size_bytes
        production = self._production
        number = self._line_count + 1
        for parsed in production.parser.parse(lines, number):
            given = parsed.partition
            partition = given if production.partition is None else production.partition
            numbers = range(number, number + len(parsed.values))
            number = numbers.stop
            try:
                sent = self._producer.send_many(
                    production.topic,
                    parsed.values,
                    parsed.keys,
                    partition=partition,
                    headers=production.headers,
                )
            except RecordTooLargeError as error:
                longest = max(numbers, key=lambda one: len(lines[one - self._line_count - 1]))
                where = production.name_input(range(longest, longest + 1))
                raise RecordTooLargeError(f"{where}: {error}") from error
            in_order = parsed.keys is None or partition is not None
            self._account.add(sent, numbers, size_bytes, in_order=in_order)
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


def _size_of(lines: Sequence[bytes]) -> int:
    """As they stood in the input; a text is not split for it."""
    return len(lines.text) if isinstance(lines, TextLines) else sum(map(len, lines)) + len(lines)


def _open_input(production: Production) -> Iterator[Sequence[bytes]]:
    if production.record_files:
        for path in production.record_files:
            yield (path.read_bytes(),)
    elif production.file is not None:
        with production.file.open("rb", buffering=0) as stream:
            yield from read_lines(stream.fileno(), production.delimiter)
    elif _is_typed(production):
        yield from _prompt_lines()
    else:
        yield from read_lines(sys.stdin.fileno(), production.delimiter)


def _is_typed(production: Production) -> bool:
    if production.file is not None or production.record_files:
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def _prompt_lines() -> Iterator[Sequence[bytes]]:
    """TextLines typed by a person, each sent before the next prompt; Ctrl-D ends."""
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


def _input_bytes(production: Production) -> int | None:
    """How long the input is, if that can be known: of a file, named or behind stdin."""
    file = production.file
    if production.record_files:
        return sum(path.stat().st_size for path in production.record_files)
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


# Lines of bytes from a file, a pipe or a terminal, as they arrive.
#
# Whoever reads is told when nothing more is there at the moment, so that it can send what it has:
# `tail -f | moldau produce` should not wait for a full batch.


_CHUNK_BYTES = 256 * 1024
_IDLE_SECONDS = 0.01


def read_lines(descriptor: int, delimiter: bytes = LINE_END) -> Iterator[TextLines]:
    """Lines in bunches; an empty bunch says that no more is there now.

    With a delimiter of their own the pieces are exact: a carriage return is part of one.
    """
    unfinished: list[bytes] = []  # pieces of a line whose end has not been read
    while True:
        if not _has_input(descriptor):
            yield TextLines(b"", delimiter)
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            break
        unfinished.append(chunk)
        if delimiter not in chunk and len(delimiter) == 1:
            continue
        text = b"".join(unfinished)
        rest = _behind_last(delimiter, text)
        unfinished = [rest]
        if len(rest) < len(text):
            yield TextLines(text[: len(text) - len(rest)], delimiter)
    last = b"".join(unfinished)
    if last:
        yield TextLines(last + delimiter, delimiter)


def _behind_last(delimiter: bytes, text: bytes) -> bytes:
    if len(delimiter) == 1:
        return text[text.rfind(delimiter) + 1 :]
    return text.split(delimiter)[-1]  # it may overlap itself: from the beginning


def _has_input(descriptor: int) -> bool:
    """Whether a read would return at once; files always have input, if only their end."""
    readable, _, _ = select.select([descriptor], [], [], _IDLE_SECONDS)
    return bool(readable)
