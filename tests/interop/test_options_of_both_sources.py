"""Every option of Spark's Kafka integration guide, with Spark's own source and with ours.

One table for reading and one for writing: what an option does is written down once, and asked of
`format("kafka")` and of `format("moldau")`. Where the two differ on purpose, the row says so, and
`docs/spark.md` does, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import moldau
from moldau.client.blocking import Admin
from support import confluent_client
from support.rows import Row
from support.spark_versions import QUERY_SECONDS, limits_batches
from support.topics import Topics, fresh_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SOURCES: Final = ("kafka", "moldau")
START_MS: Final = 1_700_000_000_000
REFUSED: Final = "refused"

Place = tuple[str, int, int]
Outcome = list[Place] | str


@dataclass(frozen=True, slots=True)
class Ground:
    """What there is to read: ten records in partition 0 of `topic` and five in partition 1, each a
    second later than the one before; three in `other`; `trimmed` lost four of six."""

    topic: str
    other: str
    trimmed: str

    def offsets(self, zero: int, one: int) -> str:
        return json.dumps({self.topic: {"0": zero, "1": one}})

    def places(self, zero: range = range(10), one: range = range(5)) -> list[Place]:
        return [(self.topic, 0, offset) for offset in zero] + [
            (self.topic, 1, offset) for offset in one
        ]


@pytest.fixture(scope="module")
def ground(bootstrap: str) -> Ground:
    topics = Topics(bootstrap)
    topic = topics.create(partitions=2, prefix="ground")
    found = Ground(topic, f"{topic}-other", f"{topic}-trimmed")
    topics.create_named(found.other)
    topics.create_named(found.trimmed)
    confluent_client.produce(bootstrap, topic, rows(10))
    confluent_client.produce(bootstrap, topic, rows(5), partition=1)
    confluent_client.produce(bootstrap, found.other, rows(3))
    confluent_client.produce(bootstrap, found.trimmed, rows(6))
    with Admin(bootstrap) as admin:
        admin.delete_records({moldau.TopicPartition(found.trimmed, 0): 4})
    return found


def rows(count: int) -> list[Row]:
    return [
        Row(b"key-%d" % number, b"%d" % number, (("h", b"%d" % number),), START_MS + 1000 * number)
        for number in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Reading:
    """One row of the table: what is set, and what is read then."""

    option: str
    options: Callable[[Ground], dict[str, str]]
    finds: Callable[[Ground], Outcome]
    subscribes: bool = True
    but_moldau: Callable[[Ground], Outcome] | None = None
    """What Moldau does instead, on purpose."""

    def outcome_of(self, source: str, ground: Ground) -> Outcome:
        differs = source == "moldau" and self.but_moldau is not None
        return self.but_moldau(ground) if differs else self.finds(ground)  # type: ignore[misc]


def reads(
    option: str,
    finds: Callable[[Ground], Outcome] | str = Ground.places,
    *,
    subscribes: bool = True,
    but_moldau: Callable[[Ground], Outcome] | str | None = None,
    **options: object,
) -> Reading:
    """Values that are functions are given the ground."""

    def resolve(ground: Ground) -> dict[str, str]:
        found = {
            name: value(ground) if callable(value) else value for name, value in options.items()
        }
        return {name.replace("__", "."): str(value) for name, value in found.items()}

    def always(outcome: Callable[[Ground], Outcome] | str) -> Callable[[Ground], Outcome]:
        return outcome if callable(outcome) else lambda _: outcome

    differs = None if but_moldau is None else always(but_moldau)
    return Reading(option, resolve, always(finds), subscribes, differs)


BATCHES: Final = (
    reads("subscribe"),
    reads(
        "subscribe, several",
        lambda g: [*g.places(), *((g.other, 0, offset) for offset in range(3))],
        subscribe=lambda g: f"{g.topic},{g.other}",
    ),
    reads("subscribe, nothing chosen", REFUSED, subscribes=False),
    reads("subscribe, a topic that is not there", REFUSED, subscribe="nobody-made-this"),
    reads(
        "subscribePattern",
        lambda g: [*g.places(), *((g.other, 0, offset) for offset in range(3))],
        subscribes=False,
        subscribePattern=lambda g: f"^{g.topic}(-[^t]\\w++)?$",
    ),
    reads(
        "subscribePattern, a part of the name",
        lambda g: [(g.other, 0, offset) for offset in range(3)],
        subscribes=False,
        subscribePattern=lambda g: f"{g.topic}-o",
        but_moldau=lambda g: [],  # it is no topic's whole name
    ),
    reads("subscribePattern and subscribe", REFUSED, subscribePattern="a.*"),
    reads(
        "assign",
        lambda g: g.places(range(0)),
        subscribes=False,
        assign=lambda g: json.dumps({g.topic: [1]}),
    ),
    reads("startingOffsets, earliest", startingOffsets="earliest"),
    reads("startingOffsets, latest", REFUSED, startingOffsets="latest"),
    reads(
        "startingOffsets, by partition",
        lambda g: g.places(range(7, 10)),
        startingOffsets=lambda g: g.offsets(7, -2),
    ),
    reads(
        "startingOffsets, not for all partitions",
        REFUSED,
        startingOffsets=lambda g: json.dumps({g.topic: {"0": 3}}),
    ),
    reads("startingOffsets, nonsense", REFUSED, startingOffsets="soon"),
    reads(
        "endingOffsets",
        lambda g: g.places(range(3)),
        endingOffsets=lambda g: g.offsets(3, -1),
    ),
    reads("endingOffsets, latest", endingOffsets="latest"),
    reads("endingOffsets, earliest", REFUSED, endingOffsets="earliest"),
    reads("endingOffsets, -2", REFUSED, endingOffsets=lambda g: g.offsets(3, -2)),
    reads(
        "startingTimestamp",
        lambda g: g.places(range(3, 10), range(3, 5)),
        startingTimestamp=START_MS + 3000,
        startingOffsets="earliest",  # goes after it
    ),
    reads("startingTimestamp, nothing as late", REFUSED, startingTimestamp=START_MS + 7000),
    reads(
        "startingOffsetsByTimestampStrategy",
        lambda g: g.places(range(7, 10), range(0)),
        startingTimestamp=START_MS + 7000,
        startingOffsetsByTimestampStrategy="latest",
    ),
    reads(
        "startingOffsetsByTimestampStrategy, nonsense",
        REFUSED,
        startingOffsetsByTimestampStrategy="x",
    ),
    reads(
        "startingOffsetsByTimestamp",
        lambda g: g.places(range(8, 10), range(1, 5)),
        startingOffsetsByTimestamp=lambda g: g.offsets(START_MS + 7001, START_MS + 1000),
    ),
    reads(
        "endingTimestamp",
        lambda g: g.places(range(6)),
        endingTimestamp=START_MS + 6000,
    ),
    reads(
        "endingOffsetsByTimestamp",
        lambda g: g.places(range(8), range(1)),
        endingOffsetsByTimestamp=lambda g: g.offsets(START_MS + 7001, START_MS + 1000),
        endingOffsets=lambda g: g.offsets(1, 1),  # goes after it
    ),
    reads(
        "failOnDataLoss, true",
        REFUSED,
        subscribe=lambda g: g.trimmed,
        startingOffsets=lambda g: json.dumps({g.trimmed: {"0": 0}}),
    ),
    reads(
        "failOnDataLoss, false",
        lambda g: [(g.trimmed, 0, 4), (g.trimmed, 0, 5)],
        subscribe=lambda g: g.trimmed,
        startingOffsets=lambda g: json.dumps({g.trimmed: {"0": 0}}),
        failOnDataLoss="false",
    ),
    reads("kafkaConsumer.pollTimeoutMs", kafkaConsumer__pollTimeoutMs=60_000),
    reads("fetchOffset.numRetries", fetchOffset__numRetries=2),
    reads("fetchOffset.retryIntervalMs", fetchOffset__retryIntervalMs=20),
    reads("groupIdPrefix", groupIdPrefix="spark"),
    reads("kafka.group.id", kafka__group__id="readers"),
    reads("kafka.auto.offset.reset", REFUSED, kafka__auto__offset__reset="earliest"),
    reads("kafka.key.deserializer", REFUSED, kafka__key__deserializer="a.b.C"),
    reads("kafka.value.deserializer", REFUSED, kafka__value__deserializer="a.b.C"),
    reads("kafka.enable.auto.commit", REFUSED, kafka__enable__auto__commit="true"),
    reads("kafka.interceptor.classes", REFUSED, kafka__interceptor__classes="a.b.C"),
    reads("kafka.bootstrap.servers, not set", REFUSED, kafka__bootstrap__servers=""),
    reads("maxOffsetsPerTrigger, in a batch", maxOffsetsPerTrigger=3),
    reads("a name that nobody knows", but_moldau=REFUSED, startingOfsets="earliest"),
)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("row", BATCHES, ids=lambda row: row.option)
def test_an_option_of_a_batch(
    row: Reading, source: str, spark: SparkSession, bootstrap: str, ground: Ground
) -> None:
    wanted = row.outcome_of(source, ground)
    given = {"kafka.bootstrap.servers": bootstrap}
    if row.subscribes:
        given["subscribe"] = ground.topic
    given |= row.options(ground)
    assert outcome(lambda: places_of(spark.read.format(source).options(**given).load())) == wanted


def places_of(frame: DataFrame) -> Outcome:
    found = frame.select("topic", "partition", "offset").collect()
    return sorted((row.topic, row.partition, row.offset) for row in found)


def outcome(act: Callable[[], Outcome]) -> Outcome:
    """What comes of it; any failure is a refusal."""
    try:
        return act()
    except Exception:  # noqa: BLE001 Spark has a class for each way to fail
        return REFUSED


@pytest.mark.parametrize("source", SOURCES)
def test_minPartitions_and_maxRecordsPerPartition_cut_tasks(
    source: str, spark: SparkSession, bootstrap: str, ground: Ground
) -> None:
    def task_count(**options: object) -> int:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": ground.topic}
        frame = spark.read.format(source).options(**given, **options).load()  # type: ignore[arg-type]
        assert places_of(frame) == ground.places()
        return int(frame.rdd.getNumPartitions())

    assert task_count() == 2
    assert task_count(minPartitions=5) >= 5
    if source == "moldau":  # Spark's own source looks at it in streams only
        assert task_count(maxRecordsPerPartition=4) == 5  # 10 = 4 + 3 + 3, 5 = 3 + 2


@pytest.mark.parametrize("source", SOURCES)
def test_includeHeaders_adds_a_column(
    source: str, spark: SparkSession, bootstrap: str, ground: Ground
) -> None:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": ground.other}
    plain = spark.read.format(source).options(**given).load()
    assert "headers" not in plain.columns
    frame = spark.read.format(source).options(**given, includeHeaders="true").load()
    assert frame.columns == [*plain.columns, "headers"]
    found = [
        [(header.key, bytes(header.value)) for header in row.headers]
        for row in frame.select("headers").collect()
    ]
    assert found == [[("h", b"0")], [("h", b"1")], [("h", b"2")]]


class Streams:
    """Queries that keep what they read in files."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._folder = folder

    def start(self, source: str, options: dict[str, str], **trigger: object) -> StreamingQuery:
        given = {"kafka.bootstrap.servers": self._bootstrap, **options}
        stream = self._spark.readStream.format(source).options(**given).load()
        writer = stream.select("topic", "partition", "offset").writeStream.format("json")
        writer = writer.option("checkpointLocation", str(self._folder / "checkpoint"))
        return writer.trigger(**trigger).start(str(self._folder / "data"))  # type: ignore[arg-type]

    def run(self, source: str, **options: str) -> list[int]:
        """Read what is there, and say how many rows each batch had."""
        query = self.start(source, options, availableNow=True)
        assert query.awaitTermination(QUERY_SECONDS)
        return [one.numInputRows for one in query.recentProgress if one.numInputRows]

    def places(self) -> list[Place]:
        return sorted(
            (row["topic"], row["partition"], row["offset"])
            for path in (self._folder / "data").glob("*.json")
            for row in map(json.loads, path.read_text().splitlines())
        )


@pytest.fixture
def streams(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Streams:
    return Streams(spark, bootstrap, tmp_path)


STREAMS: Final = (
    reads("startingOffsets, left out", lambda g: []),
    reads("startingOffsets, earliest", startingOffsets="earliest"),
    reads(
        "startingOffsets, by partition",
        lambda g: g.places(range(7, 10), range(0)),
        startingOffsets=lambda g: g.offsets(7, -1),
    ),
    reads(
        "startingOffsetsByTimestamp",
        lambda g: g.places(range(8, 10), range(1, 5)),
        startingOffsetsByTimestamp=lambda g: g.offsets(START_MS + 7001, START_MS + 1000),
    ),
    reads("endingOffsets", REFUSED, endingOffsets="latest"),
    reads("endingTimestamp", lambda g: [], endingTimestamp=START_MS, but_moldau=REFUSED),
    reads("endingOffsetsByTimestamp", REFUSED, endingOffsetsByTimestamp=lambda g: g.offsets(1, 1)),
    reads(
        "minOffsetsPerTrigger and maxTriggerDelay, first batch",
        startingOffsets="earliest",
        minOffsetsPerTrigger=1000,
        maxTriggerDelay="10m",
    ),
    reads(
        "minOffsetsPerTrigger above maxOffsetsPerTrigger",
        REFUSED,
        minOffsetsPerTrigger=10,
        maxOffsetsPerTrigger=5,
    ),
)


@limits_batches
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("row", STREAMS, ids=lambda row: row.option)
def test_an_option_of_a_stream(row: Reading, source: str, ground: Ground, streams: Streams) -> None:
    given = {"subscribe": ground.topic, **row.options(ground)}
    wanted = row.outcome_of(source, ground)

    def read() -> Outcome:
        streams.run(source, **given)
        return streams.places()

    assert outcome(read) == wanted


@limits_batches
@pytest.mark.parametrize("source", SOURCES)
def test_maxOffsetsPerTrigger_limits_batches(source: str, ground: Ground, streams: Streams) -> None:
    given = {"subscribe": ground.topic, "startingOffsets": "earliest"}
    sizes = streams.run(source, **given, maxOffsetsPerTrigger="6")
    assert streams.places() == ground.places()
    assert len(sizes) >= 3
    assert max(sizes) <= 6


@pytest.mark.parametrize("source", SOURCES)
def test_the_progress_of_a_stream_has_its_offsets(
    source: str, ground: Ground, streams: Streams
) -> None:
    given = {"subscribe": ground.topic, "startingOffsets": "earliest"}
    query = streams.start(source, given, availableNow=True)
    assert query.awaitTermination(QUERY_SECONDS)
    (read,) = (one for one in query.recentProgress if one.numInputRows)
    offsets = json.loads(read.sources[0].endOffset)
    ids = [name for name, partitions in offsets.items() if not partitions]  # docs/spark.md
    assert [name.partition("@")[0] for name in ids] == [ground.topic] * (source == "moldau")
    assert {name: offsets[name] for name in offsets if name not in ids} == {
        ground.topic: {"0": 10, "1": 5}
    }


@pytest.mark.parametrize(("first", "second"), [SOURCES, SOURCES[::-1]])
def test_a_checkpoint_is_taken_over_by_the_other_source(
    first: str, second: str, bootstrap: str, streams: Streams
) -> None:
    topic = Topics(bootstrap).create(partitions=2)
    confluent_client.produce(bootstrap, topic, rows(4))
    given = {"subscribe": topic, "startingOffsets": "earliest"}
    streams.run(first, **given)
    confluent_client.produce(bootstrap, topic, rows(3), partition=1)
    streams.run(second, **given)
    confluent_client.produce(bootstrap, topic, rows(2))
    streams.run(first, **given)
    assert streams.places() == [
        *((topic, 0, offset) for offset in range(6)),
        *((topic, 1, offset) for offset in range(3)),
    ]


@dataclass(frozen=True, slots=True)
class Writing:
    """One row of the table: what is set and written, and what is in the topic then."""

    option: str
    columns: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    writes: list[tuple[bytes | None, bytes | None]] | str = REFUSED
    mode: str | None = "append"
    names_topic: bool = True
    but_moldau: str | None = None


ONE: Final = [(None, b"v")]
VALUE: Final = ("'v' AS value",)
WRITES: Final = (
    Writing("topic", VALUE, writes=ONE),
    Writing("topic, as a column", (*VALUE, "'TOPIC' AS topic"), names_topic=False, writes=ONE),
    Writing("topic, an option before a column", (*VALUE, "'elsewhere' AS topic"), writes=ONE),
    Writing("topic, said nowhere", VALUE, names_topic=False),
    Writing("key", (*VALUE, "'k' AS key"), writes=[(b"k", b"v")]),
    Writing("value, binary", ("CAST('v' AS BINARY) AS value",), writes=ONE),
    Writing("value, null", ("CAST(NULL AS STRING) AS value", "'k' AS key"), writes=[(b"k", None)]),
    Writing("value, not there", ("'k' AS key",)),
    Writing("value, a number", ("1 AS value",)),
    Writing("partition", (*VALUE, "0 AS partition"), writes=ONE),
    Writing("partition, a text", (*VALUE, "'0' AS partition")),
    Writing(
        "headers",
        (*VALUE, "array(struct('h' AS key, CAST('x' AS BINARY) AS value)) AS headers"),
        writes=ONE,
    ),
    Writing("headers, a text", (*VALUE, "'h' AS headers")),
    Writing("includeHeaders", VALUE, {"includeHeaders": "true"}, ONE),
    Writing("kafka.acks", VALUE, {"kafka.acks": "all"}, ONE),
    Writing("kafka.compression.type", VALUE, {"kafka.compression.type": "gzip"}, ONE),
    Writing("kafka.bootstrap.servers, not set", VALUE, {"kafka.bootstrap.servers": ""}),
    Writing("kafka.key.serializer", VALUE, {"kafka.key.serializer": "a.b.C"}),
    Writing("kafka.value.serializer", VALUE, {"kafka.value.serializer": "a.b.C"}),
    Writing("mode overwrite", VALUE, mode="overwrite"),
    Writing("mode ignore", VALUE, mode="ignore"),
    Writing("mode errorifexists", VALUE, writes=ONE, mode="errorifexists", but_moldau=REFUSED),
    Writing("mode, left out", VALUE, writes=ONE, mode=None, but_moldau=REFUSED),
    Writing("a name that nobody knows", VALUE, {"topik": "x"}, ONE, but_moldau=REFUSED),
)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("row", WRITES, ids=lambda row: row.option)
def test_an_option_of_a_write(
    row: Writing, source: str, spark: SparkSession, bootstrap: str
) -> None:
    topic = Topics(bootstrap).create()
    columns = [column.replace("TOPIC", topic) for column in row.columns]
    given = {"kafka.bootstrap.servers": bootstrap}
    if row.names_topic:
        given["topic"] = topic

    def write() -> str | None:
        writer = spark.range(1).selectExpr(*columns).write.format(source)
        if row.mode is not None:
            writer = writer.mode(row.mode)
        try:
            writer.options(**{**given, **row.options}).save()
        except Exception:  # noqa: BLE001 Spark has a class for each way to fail
            return REFUSED
        return None

    is_refused = row.writes == REFUSED or (source == "moldau" and row.but_moldau == REFUSED)
    assert write() == (REFUSED if is_refused else None)
    table = moldau.read_table(topic, bootstrap=bootstrap, columns=["key", "value"])
    found = [(one["key"], one["value"]) for one in table.to_pylist()]
    assert found == ([] if is_refused else row.writes)


@pytest.fixture
def counted(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Callable[..., Outcome]:
    """Counts the records of each value as a stream, into a topic, and gives back what is there."""
    topic = Topics(bootstrap).create(prefix="numbers")
    confluent_client.produce(bootstrap, topic, rows(3))
    brokers = {"kafka.bootstrap.servers": bootstrap}

    def run(source: str, mode: str) -> list[str] | str:
        target = fresh_name("counts")
        Topics(bootstrap).create_named(target)
        stream = spark.readStream.format(source).options(**brokers, subscribe=topic)
        counts = stream.option("startingOffsets", "earliest").load().groupBy("value").count()
        writer = counts.selectExpr("CAST(value AS STRING) || '=' || count AS value").writeStream
        writer = writer.format(source).options(**brokers, topic=target).outputMode(mode)
        writer = writer.option("checkpointLocation", str(tmp_path / target))
        try:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination(QUERY_SECONDS)
        except Exception:  # noqa: BLE001 Spark has a class for each way to fail
            return REFUSED
        table = moldau.read_table(target, bootstrap=bootstrap, columns=["value"])
        return sorted(value.decode() for value in table["value"].to_pylist())

    return run


@pytest.mark.parametrize(
    ("source", "mode", "wanted"),
    [
        ("kafka", "complete", ["0=1", "1=1", "2=1"]),
        ("moldau", "complete", ["0=1", "1=1", "2=1"]),
        ("kafka", "update", ["0=1", "1=1", "2=1"]),
        ("moldau", "update", REFUSED),  # Spark offers it to no sink in Python
        ("kafka", "append", REFUSED),  # without a watermark
        ("moldau", "append", REFUSED),
    ],
)
def test_an_output_mode_of_a_stream(
    counted: Callable[..., Outcome], source: str, mode: str, wanted: Outcome
) -> None:
    assert counted(source, mode) == wanted
