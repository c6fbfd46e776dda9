"""Plays stories about transactions: commands in, what the machine answers and logs out, as text.

The stage has the machine of one shard of `__transaction_state`, a log (a list) and a clock; no
socket, no file. A story is about one transactional id, `payments`. Producers go by short names; a
name stands for the producer id and the epoch that it was told last.

    init A [timeout=60s]        InitProducerId; continues=yes names who it was (KIP-360),
                                keep=yes keeps what is prepared, timeout=never for two phases
    add A t-0 t-1               AddPartitionsToTxn
    commit A, abort A           EndTxn
    markers t-0 ...             partitions have the marker of the last decision (all: `markers`)
    verify A t-0                whether a partition is part of the open transaction (KIP-890)
    lose commit A               the same for commit and abort, and the answer is lost
    late 100/0 t-0              partitions have the marker of an earlier identity
    version 2                   the transaction version that producers speak from now on
    wait 10s                    time passes
    time out                    the broker looks for what has been open for too long
    expire 7d                   the broker forgets ids that were not used for so long
    restart                     another coordinator takes over: a new machine, fed from the log
"""

from __future__ import annotations

import re

from moldau.coordinators.transactions.rules.records import decode_transaction, encode_transaction
from moldau.coordinators.transactions.rules.transaction_metadata import (
    NO_TIMEOUT_MS,
    IdAndEpoch,
    TransactionMetadata,
)
from moldau.coordinators.transactions.rules.transactions import (
    AddPartitions,
    EndTransaction,
    ExpireId,
    InitProducer,
    MarkersToWrite,
    MarkersWritten,
    TransactionAnswer,
    TransactionEvent,
    TransactionRecord,
    Transactions,
    markers_of,
)
from moldau.errors import ErrorCode
from moldau.model import NO_PRODUCER_ID, TopicPartition

ID = "payments"
START_MS = 1_000_000_000
FIRST_PRODUCER_ID = 100

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_ms(text: str) -> int:
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    assert found is not None, f"{text!r} is no length of time"
    return int(found[1]) * _UNITS_MS[found[2]]


class TransactionStage:
    """One story being played."""

    def __init__(self) -> None:
        self.transactions = Transactions()
        self.log: list[TransactionRecord] = []
        self.now_ms = START_MS
        self._version = 0
        self._next_id = FIRST_PRODUCER_ID
        self._producers: dict[str, IdAndEpoch] = {}
        self._markers: MarkersToWrite | None = None
        self._loses_answer = False
        self._shown = "unknown"
        self._lines: list[str] = []

    def play(self, line: str) -> list[str]:
        """One command; what came of it."""
        self._lines = []
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        getattr(self, f"_do_{command}")(names, options)
        self._show_change()
        return self._lines

    # Commands

    def _do_init(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        timeout = options.get("timeout", "60s")
        event = InitProducer(
            transactional_id=ID,
            timeout_ms=NO_TIMEOUT_MS if timeout == "never" else parse_ms(timeout),
            expected=self._producers[name] if "continues" in options else None,
            keeps_prepared="keep" in options,
            spare_id=self._spare_id(),
        )
        answer = self._handle(event)
        if answer.error is ErrorCode.none:
            self._producers[name] = answer.producer
        kept = answer.prepared
        told = f", to complete {_who(kept)}" if kept.producer_id != NO_PRODUCER_ID else ""
        self._tell(name, answer, f"is {_who(answer.producer)}{told}")

    def _do_add(self, names: list[str], options: dict[str, str]) -> None:
        name, *partitions = names
        event = AddPartitions(
            transactional_id=ID,
            producer=self._producers[name],
            partitions=frozenset(map(_partition, partitions)),
            version=self._version,
        )
        self._tell(name, self._handle(event), "done")

    def _do_commit(self, names: list[str], options: dict[str, str]) -> None:
        self._end(names[0], is_commit=True)

    def _do_abort(self, names: list[str], options: dict[str, str]) -> None:
        self._end(names[0], is_commit=False)

    def _end(self, name: str, *, is_commit: bool) -> None:
        event = EndTransaction(
            transactional_id=ID,
            producer=self._producers[name],
            commit=is_commit,
            version=self._version,
            spare_id=self._spare_id(),
        )
        answer = self._handle(event)
        is_news = answer.error is ErrorCode.none and self._version >= 2
        if is_news and not self._loses_answer:
            self._producers[name] = answer.producer
        self._tell(name, answer, f"done, is {_who(answer.producer)}" if is_news else "done")

    def _do_lose(self, names: list[str], options: dict[str, str]) -> None:
        command, name = names
        self._loses_answer = True
        self._end(name, is_commit={"commit": True, "abort": False}[command])
        self._loses_answer = False

    def _do_late(self, names: list[str], options: dict[str, str]) -> None:
        who, *partitions = names
        event = MarkersWritten(
            transactional_id=ID,
            producer=IdAndEpoch(*map(int, who.split("/"))),
            partitions=frozenset(map(_partition, partitions)),
        )
        self._handle(event)

    def _do_markers(self, names: list[str], options: dict[str, str]) -> None:
        markers = self._markers
        assert markers is not None, "nothing was decided"
        written = frozenset(map(_partition, names)) or markers.partitions
        self._handle(
            MarkersWritten(transactional_id=ID, producer=markers.producer, partitions=written)
        )

    def _do_verify(self, names: list[str], options: dict[str, str]) -> None:
        name, *partitions = names
        wanted = frozenset(map(_partition, partitions))
        found = self.transactions.verify(ID, self._producers[name], wanted)
        for one, error in sorted(found.items()):
            self._lines.append(f"{one}: {'yes' if error is ErrorCode.none else _code(error)}")

    def _do_version(self, names: list[str], options: dict[str, str]) -> None:
        self._version = int(names[0])

    def _do_wait(self, names: list[str], options: dict[str, str]) -> None:
        self.now_ms += parse_ms(names[0])

    def _do_time(self, names: list[str], options: dict[str, str]) -> None:
        for abort in self.transactions.find_timed_out(self.now_ms, self.now_ms / 1000):
            self._handle(abort)

    def _do_expire(self, names: list[str], options: dict[str, str]) -> None:
        expiration_ms = parse_ms(names[0])
        for one in self.transactions.expired(expiration_ms, self.now_ms):
            self._handle(ExpireId(transactional_id=one, expiration_ms=expiration_ms))

    def _do_restart(self, names: list[str], options: dict[str, str]) -> None:
        self.transactions = Transactions()
        for record in self.log:
            read = decode_transaction(*encode_transaction(record))
            assert read == record
            self.transactions.apply(read)
        for markers in self.transactions.markers():
            self._send(markers)

    # The shard

    def _spare_id(self) -> int | None:
        if not self.transactions.wants_producer_id(ID):
            return None
        self._next_id += 1
        return self._next_id - 1

    def _handle(self, event: TransactionEvent) -> TransactionAnswer:
        """What a shard does, without its log, loop and leaders of partitions."""
        outcome = self.transactions.handle(event, self.now_ms)
        for record in outcome.records:
            self.log.append(record)
            self.transactions.apply(record, is_live=True)
            self._lines.append(f"log: {_describe(record.metadata)}")
        if outcome.records:
            last = outcome.records[-1].metadata
            if last is not None and last.state.is_prepared:
                self._send(markers_of(last))
        return outcome.answer or TransactionAnswer()

    def _send(self, markers: MarkersToWrite) -> None:
        self._markers = markers
        what = "commit" if markers.commit else "abort"
        partitions = " ".join(map(str, sorted(markers.partitions)))
        self._lines.append(f"markers to {what} by {_who(markers.producer)}: {partitions}")

    # Text

    def _tell(self, name: str, answer: TransactionAnswer, success: str) -> None:
        text = success if answer.error is ErrorCode.none else _code(answer.error)
        self._lines.append(f"{name} {'does not hear:' if self._loses_answer else '<-'} {text}")

    def _show_change(self) -> None:
        """Where the id is now, when that has changed."""
        found = self.transactions.find(ID)
        shown = "unknown" if found is None else f"{found.state.label}, {_who(found.client)}"
        if shown != self._shown:
            self._shown = shown
            self._lines.append(f"[{shown}]")


def _partition(text: str) -> TopicPartition:
    topic, number = text.rsplit("-", 1)
    return TopicPartition(topic, int(number))


def _who(producer: IdAndEpoch) -> str:
    return f"{producer.producer_id}/{producer.producer_epoch}"


def _code(error: ErrorCode) -> str:
    return error.name.upper()


def _describe(metadata: TransactionMetadata | None) -> str:
    if metadata is None:
        return "the id is gone"
    partitions = " ".join(map(str, sorted(metadata.partitions)))
    own = IdAndEpoch(metadata.producer_id, metadata.producer_epoch)
    return f"{metadata.state.label} by {_who(own)}" + (f": {partitions}" if partitions else "")
