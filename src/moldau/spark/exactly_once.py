"""The streaming sink with exactlyOnce: tasks prepare transactions, the driver decides. A shell.

What a batch's tasks have prepared counts when the decision over the batch is recorded; see
`rules.batch_decisions` and `docs/spark.md`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from moldau.client.admin.values import (
    ONGOING,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    TransactionDescription,
)
from moldau.client.blocking import Admin
from moldau.client.cluster import ClientSettings, client_settings
from moldau.client.producer.rules.transaction_manager import PreparedTransaction
from moldau.client.read_table import read_table
from moldau.config.client_options import AdminOptions
from moldau.errors import (
    ConfigurationError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    InvariantViolation,
    KafkaError,
    MoldauError,
    ProducerFencedError,
    TopicExistsError,
    TransactionalIdAuthorizationError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition
from moldau.spark.rules import batch_decisions
from moldau.spark.rules.batch_decisions import Decision
from moldau.spark.worker import freeze_once, make_producer

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.client.blocking import Producer
    from moldau.spark.options import WriteOptions


_BATCH_ID = "streaming.sql.batchId"
_QUERY_ID = "sql.streaming.queryId"
_DRIVER_TIMEOUT_MS = "30000"
"""Of the transaction in which a decision is written. It lasts as long as a round trip."""

_ATTEMPTS = 3
_PROBE_MS = "10000"

SendRows = Callable[["Producer", Iterator["pa.RecordBatch"]], int]


@dataclass(frozen=True, slots=True)
class PreparedRows(WriterCommitMessage):
    """What a task tells the driver. None is prepared where there were no rows."""

    query_id: str
    batch_id: int
    row_count: int
    prepared: PreparedTransaction | None


# Tasks

_ids: dict[tuple[int, str], list[tuple[str, int]]] = {}
"""The transactional ids of this process by process and query, each with the batch it was used for.
No other process ever has one of them."""


def prepare_rows(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, send_rows: SendRows
) -> PreparedRows:
    """Write the rows of one task in a transaction, and leave that prepared."""
    query_id, batch_id = _find_place()
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return PreparedRows(query_id, batch_id, 0, None)
    name = _choose_transactional_id(query_id, batch_id)
    with _explain_missing_support(), _make_task_producer(options, name) as producer:
        producer.begin_transaction()
        row_count = send_rows(producer, _chain(first, batches))
        prepared = producer.prepare_transaction()
    _ids.setdefault((os.getpid(), query_id), []).append((name, batch_id))
    freeze_once()
    return PreparedRows(query_id, batch_id, row_count, prepared)


def _find_place() -> tuple[str, int]:
    """The query and the batch that this task works for."""
    context = TaskContext.get()
    query_id = context and context.getLocalProperty(_QUERY_ID)
    batch_id = context and context.getLocalProperty(_BATCH_ID)
    if not query_id or not batch_id:
        raise ConfigurationError(
            "exactlyOnce=true: Spark does not tell the task which query and which batch it is of; "
            "use writeStream with micro-batches"
        )
    return query_id, int(batch_id)


def _choose_transactional_id(query_id: str, batch_id: int) -> str:
    """An id that is this process's alone, and whose last transaction is over: when a later batch
    is written, all transactions of the one before have been completed, or lost."""
    mine = _ids.get((os.getpid(), query_id), [])
    for place, (name, former) in enumerate(mine):
        if former < batch_id:
            del mine[place]
            return name
    return batch_decisions.task_transactional_id(query_id, uuid4().hex)


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


@contextmanager
def _explain_missing_support() -> Iterator[None]:
    """A broker that cannot do it says what is missing; the option that needs it is named here."""
    try:
        yield
    except (TransactionalIdAuthorizationError, UnsupportedByBrokerError) as error:
        raise ConfigurationError(
            f"exactlyOnce=true needs two-phase commit: {error}; or leave exactlyOnce out, and "
            "every row is written at least once"
        ) from error


# The driver

_logs: dict[tuple[int, str, str], DecisionLog] = {}
"""Open logs by process, cluster and query."""


def commit_batch(
    messages: Sequence[WriterCommitMessage | None], batch_id: int, options: WriteOptions
) -> None:
    """Decide over a batch, unless it is decided; then complete what was decided."""
    query_id, offered = _read_messages(messages, batch_id)
    if query_id is None:
        return  # without a task there is nothing to decide
    with _explain_missing_support(), _open_admin(options) as admin:
        latest = _decide(admin, query_id, batch_id, offered, options)
        if latest.batch_id == batch_id:
            _complete_transactions(admin, latest.commit, commit=True)
            _complete_transactions(admin, latest.abort, commit=False)
        _complete_transactions(
            admin, batch_decisions.find_undecided(latest, batch_id, offered), commit=False
        )


def _decide(
    admin: Admin,
    query_id: str,
    batch_id: int,
    offered: Collection[PreparedTransaction],
    options: WriteOptions,
) -> Decision:
    """The latest decision of the query, which is the one over this batch, or a later one.

    Spark may have another process commit every batch. Each of them keeps its log open, and hears
    that it was fenced only when it writes: then it reads what was decided since.
    """
    for _ in range(_ATTEMPTS):
        log = _open_log(query_id, admin, options)
        if log.latest is not None and log.latest.batch_id >= batch_id:
            return log.latest
        # Asked for before the decision: what a later batch will open cannot be among them.
        decision = batch_decisions.decide(batch_id, offered, _find_open(admin, query_id, offered))
        try:
            log.record(decision)
        except ProducerFencedError:
            _forget_log(query_id, options)
        except BaseException:
            _forget_log(query_id, options)  # nobody knows whether it is recorded
            raise
        else:
            return decision
    raise ProducerFencedError(
        "another driver runs the same query, with the same checkpoint: stop one of them"
    )


def abort_batch(
    messages: Sequence[WriterCommitMessage | None], batch_id: int, options: WriteOptions
) -> None:
    """Abort what was prepared, except what a decision commits: Spark aborts a batch also when its
    commit has failed half-way."""
    query_id, offered = _read_messages(messages, batch_id)
    if query_id is None or not offered:
        return
    with _open_admin(options) as admin:
        _forget_log(query_id, options)  # what it was about to record is recorded, or never will be
        log = _open_log(query_id, admin, options)
        _complete_transactions(
            admin, batch_decisions.find_undecided(log.latest, batch_id, offered), commit=False
        )


def _read_messages(
    messages: Sequence[WriterCommitMessage | None], batch_id: int
) -> tuple[str | None, tuple[PreparedTransaction, ...]]:
    told = [one for one in messages if isinstance(one, PreparedRows)]
    queries = {one.query_id for one in told}
    if len(queries) > 1 or any(one.batch_id != batch_id for one in told):
        raise InvariantViolation(f"batch {batch_id} has messages of other batches: {told}")
    offered = tuple(one.prepared for one in told if one.prepared is not None)
    return (queries.pop() if queries else None), offered


def _find_open(
    admin: Admin, query_id: str, offered: Collection[PreparedTransaction]
) -> tuple[PreparedTransaction, ...]:
    """All open transactions of the query's tasks. Those that are offered are asked for by name: an
    id whose coordinator is just moving may be in nobody's list. Patterns are an extra of brokers,
    so that names are looked at here."""
    listed = admin.list_transactions(states=[ONGOING])
    left = (name for name in listed if batch_decisions.is_of_task(name, query_id))
    names = {*left, *(one.transactional_id for one in offered)}
    found = admin.describe_transactions(tuple(names))
    return tuple(
        PreparedTransaction(
            transactional_id=name,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
        )
        for name, one in found.items()
        if isinstance(one, TransactionDescription) and one.state == ONGOING
    )


def _complete_transactions(
    admin: Admin, transactions: Collection[PreparedTransaction], *, commit: bool
) -> None:
    """Carry out a decision. What is over already was ended by it: nobody else ends them."""
    if not transactions:
        return
    for error in admin.complete_transactions(transactions, commit=commit).values():
        is_over = isinstance(error, ProducerFencedError | InvalidProducerIdMappingError)
        if error is None or is_over or (not commit and isinstance(error, InvalidTxnStateError)):
            continue
        raise error


def _open_log(query_id: str, admin: Admin, options: WriteOptions) -> DecisionLog:
    key = (os.getpid(), options.bootstrap, query_id)
    found = _logs.get(key)
    if found is None:
        producer = _make_driver_producer(options, query_id)
        try:
            found = DecisionLog(
                query_id, admin, producer, options.bootstrap, _client_settings(options)
            )
        except BaseException:
            producer.close(0)
            raise
        _logs[key] = found
    return found


def _forget_log(query_id: str, options: WriteOptions) -> None:
    found = _logs.pop((os.getpid(), options.bootstrap, query_id), None)
    if found is not None:
        found.close()


def close_logs() -> None:
    """Close what this process keeps; for tests, whose brokers come and go."""
    for key in tuple(_logs):
        _logs.pop(key).close()


# Clients


def _make_task_producer(options: WriteOptions, transactional_id: str) -> Producer:
    """Closing it aborts what it has not prepared."""
    return make_producer(
        options,
        {"transactional.id": transactional_id, "transaction.two.phase.commit.enable": "true"},
    )


def _make_driver_producer(options: WriteOptions, query_id: str) -> Producer:
    return make_producer(
        options,
        {
            "transactional.id": batch_decisions.driver_transactional_id(query_id),
            "transaction.timeout.ms": _DRIVER_TIMEOUT_MS,
            "max.request.size": str(batch_decisions.MAX_DECISION_BYTES),
        },
    )


def can_prepare(options: WriteOptions) -> bool:
    """Whether a task may leave a transaction prepared on this cluster, with these options.

    Whatever is in the way: brokers that do not have it or do not allow it, options that no
    transaction can do with, a cluster too small for the topic in which transactions are kept.
    """
    bounded = {**dict(options.producer), "max.block.ms": _PROBE_MS}
    asked = replace(options, producer=tuple(bounded.items()))
    try:
        with _make_task_producer(asked, f"moldau-spark-probe-{uuid4().hex}") as producer:
            producer.begin_transaction()
    except MoldauError:
        return False
    return True


def _open_admin(options: WriteOptions) -> Admin:
    return Admin(options.bootstrap, _client_settings(options))


def _client_settings(options: WriteOptions) -> ClientSettings:
    """From those options of the producer that every client has."""
    known = {one.name for one in AdminOptions.declarations().values()}
    given = {name.replace(".", "_"): value for name, value in options.producer if name in known}
    read = AdminOptions.read(given)
    return client_settings(read, timeout_ms=read.default_api_timeout_ms)


# The decisions of one query, in the compacted topic `__moldau_spark_commits`. Only one driver of a
# query can decide: a driver that opens the log fences all others, because decisions are written in
# transactions of one transactional id, and reads what they have decided. From then on it knows the
# latest decision without reading: another driver's could only come after it was fenced.


STATE_TOPIC: Final = "__moldau_spark_commits"
_REPLICAS: Final = 3
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2 * batch_decisions.MAX_DECISION_BYTES),
    "max.message.bytes": str(batch_decisions.MAX_DECISION_BYTES),
}
_PAUSE_SECONDS = 0.1
_CLOSE_SECONDS = 1.0


class DecisionLog:
    """Of one query; belongs to the process that opened it. `latest` is what was decided last."""

    def __init__(
        self,
        query_id: str,
        admin: Admin,
        producer: Producer,
        bootstrap: str,
        settings: ClientSettings,
    ) -> None:
        self._key = query_id.encode()
        self._admin = admin
        self._producer = producer  # with the transactional id of the query's drivers
        self._require_topic()
        self._partition = TopicPartition(STATE_TOPIC, batch_decisions.partition_of(query_id))
        # Fences whoever had the log: what it has not decided yet, it never will.
        with producer.transaction():
            pass
        self.latest = self._read(bootstrap, settings)

    def record(self, decision: Decision) -> None:
        """Raises ProducerFencedError when another driver has opened the log since. After any other
        failure the decision may have been recorded: the log is to be opened anew."""
        with self._producer.transaction():
            self._producer.send(
                STATE_TOPIC, decision.encode(), self._key, partition=self._partition.partition
            )
        self.latest = decision

    def close(self) -> None:
        self._producer.close(_CLOSE_SECONDS)

    def _require_topic(self) -> None:
        """The state topic is made when it is missing."""
        found = self._admin.describe_topics([STATE_TOPIC])[STATE_TOPIC]
        if isinstance(found, KafkaError):
            made = self._admin.create_topics([self._new_topic()])[STATE_TOPIC]
            if isinstance(made, KafkaError) and not isinstance(made, TopicExistsError):
                raise made
        count = self._producer.partition_count(STATE_TOPIC)
        if count < batch_decisions.STATE_PARTITIONS:
            raise ConfigurationError(
                f"{STATE_TOPIC} has {count} partitions: exactlyOnce=true needs "
                f"{batch_decisions.STATE_PARTITIONS}"
            )
        self._require_compaction()

    def _require_compaction(self) -> None:
        """A decision that retention has deleted is taken again, and its batch is there twice."""
        topic = ConfigResource.topic(STATE_TOPIC)
        found = self._admin.describe_configs([topic], names=["cleanup.policy"])[topic]
        if isinstance(found, KafkaError):
            return  # it may not look
        for entry in found:
            if entry.value != "compact":
                raise ConfigurationError(
                    f"{STATE_TOPIC} has cleanup.policy={entry.value}, so that decisions over "
                    "batches are deleted: exactlyOnce=true needs compact"
                )

    def _new_topic(self) -> NewTopic:
        """As safe as a decision has to be: who loses one writes a batch twice."""
        replicas = min(_REPLICAS, len(self._admin.describe_cluster().brokers))
        in_sync = {"min.insync.replicas": "2"} if replicas == _REPLICAS else {}
        return NewTopic(
            name=STATE_TOPIC,
            partitions=batch_decisions.STATE_PARTITIONS,
            replication_factor=replicas,
            configs={**_CONFIGS, **in_sync},
        )

    def _read(self, bootstrap: str, settings: ClientSettings) -> Decision | None:
        end = self._find_offset(read_committed=False)
        # Another query's transaction may be open before our last decision. It is short, and has a
        # time-out: what lies behind it has to be read.
        while self._find_offset(read_committed=True) < end:
            time.sleep(_PAUSE_SECONDS)
        rows = read_table(
            STATE_TOPIC,
            bootstrap=bootstrap,
            partitions=[self._partition.partition],
            end=end,
            columns=["key", "value"],
            read_committed=True,
            settings=settings,
        )
        values = [
            value
            for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
            if key == self._key
        ]
        return Decision.decode(values[-1]) if values else None

    def _find_offset(self, *, read_committed: bool) -> int:
        wanted = {self._partition: OffsetSpec.LATEST}
        found = self._admin.list_offsets(wanted, read_committed=read_committed)[self._partition]
        if isinstance(found, KafkaError):
            raise found
        return found.offset
