"""Loads of Avro into Delta and Parquet on real Spark: exactly once, also when columns are added.

And the groups that tell how far each query of a pipeline is.
"""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import moldau
from moldau.client.blocking import Admin
from moldau.model import TopicPartition
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.cluster import fix_starts
from moldau.spark.pipeline.delta_lake import DeltaLake
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.lake import Loaded, Staging
from moldau.spark.pipeline.run import PipelineFailedError
from moldau.spark.pipeline.status import RunReport, read_status
from moldau.spark.rules.offsets import StreamOffset
from support.pipelines import run_file, send
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a busy machine takes its time over Spark's first batches

FIRST_MS = 1_794_700_800_000
HOUR_MS = 3_600_000
USER = {"name": "user", "type": "string"}
AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
COUNTRY = {"name": "country", "type": ["null", "string"]}


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as made:
        yield made


def avro_schema(*more: dict[str, object]) -> str:
    return json.dumps({"type": "record", "name": "Click", "fields": [USER, AT, *more]})


def avro_clicks(numbers: Iterable[int], schema: str) -> list[bytes]:
    parsed = fastavro.parse_schema(json.loads(schema))
    return [_avro_click(number, parsed) for number in numbers]


def _avro_click(number: int, schema: object) -> bytes:
    stream = io.BytesIO()
    at = FIRST_MS + number % 3 * HOUR_MS
    click = {"user": f"u{number}", "at": at, "country": f"c{number}"}
    fastavro.schemaless_writer(stream, schema, click)  # type: ignore[arg-type]  # as it was parsed
    return stream.getvalue()


def declare(folder: Path, source: str, dead: str, schema: str) -> Path:
    path = folder / "pipeline.toml"
    path.write_text(
        f"""
        name = "clicks"
        [sources.clicks]
        topic = "{source}"
        format = "avro"
        schema = '''{schema}'''
        dead_letter = "{dead}"
        [sinks.table]
        delta = "table"
        time = "at"
        [sinks.files]
        parquet = "files"
        time = "at"
        """
    )
    return path


def read_delta(folder: Path) -> pa.Table:
    return pa.table(deltalake.DeltaTable(folder).to_pyarrow_table())


def read_parquet(folder: Path) -> pa.Table:
    """As the documentation tells readers to do it."""
    return pq.read_table(folder, schema=pq.read_schema(folder / "_common_metadata"))


def users(table: pa.Table) -> Counter[str | None]:
    return Counter(table["user"].to_pylist())


def clicked(count: int) -> Counter[str | None]:
    """All clicks up to a number, and the record that has no value."""
    return Counter([None, *(f"u{number}" for number in range(count))])


def test_avro_reaches_delta_and_parquet_exactly_once_also_when_columns_are_added(
    spark: SparkSession,
    bootstrap: str,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, dead = topics.create(2), fresh_name("dead")
    schema = avro_schema()
    path = declare(tmp_path, source, dead, schema)
    table, files = tmp_path / "table", tmp_path / "files"
    send(bootstrap, source, [*avro_clicks(range(40), schema), b"no Avro", None])
    run_file(spark, bootstrap, path)
    assert users(read_delta(table)) == users(read_parquet(files)) == clicked(40)
    letters = moldau.read_table(dead, bootstrap=bootstrap)["value"].to_pylist()
    assert letters == [b"no Avro"]
    found = read_delta(table).to_pylist()
    assert {row["hour"] for row in found if row["user"] is not None} == {"00", "01", "02"}
    assert [(row["date"], row["hour"]) for row in found if row["user"] is None] == [(None, None)]

    # The driver fails when the table has the batch, and Spark's checkpoint does not know it yet.
    send(bootstrap, source, avro_clicks(range(40, 60), schema))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaLake, "load_batch", _load_and_fail)
        with pytest.raises(PipelineFailedError, match=r"table failed: .*the lights went out"):
            run_file(spark, bootstrap, path)
    assert users(read_delta(table)) == clicked(60)
    version = deltalake.DeltaTable(table).version()
    run_file(spark, bootstrap, path)
    assert users(read_delta(table)) == users(read_parquet(files)) == clicked(60)
    query = Checkpoint(tmp_path / "checkpoints/clicks").query_id("table")
    after = deltalake.DeltaTable(table)
    assert (after.version(), after.transaction_version(query)) == (version, 1)

    wider = avro_schema(COUNTRY)
    declare(tmp_path, source, dead, wider)
    send(bootstrap, source, avro_clicks(range(60, 80), wider))
    run_file(spark, bootstrap, path)
    expected = {f"u{number}": f"c{number}" if number >= 60 else None for number in range(80)}
    for loaded in (read_delta(table), read_parquet(files)):
        assert users(loaded) == clicked(80)
        rows = loaded.to_pylist()
        assert {row["user"]: row["country"] for row in rows if row["user"] is not None} == expected
    by_spark = spark.read.option("mergeSchema", "true").parquet(str(files))
    assert by_spark.where("country IS NOT NULL").count() == 20


_real_load = DeltaLake.load_batch


def _load_and_fail(lake: DeltaLake, batch_id: int, staging: Staging) -> Loaded:
    _real_load(lake, batch_id, staging)
    raise RuntimeError("the lights went out")


def test_each_query_of_a_pipeline_that_runs_tells_its_own_group_how_far_it_is(
    spark: SparkSession, bootstrap: str, topics: Topics, admin: Admin, tmp_path: Path
) -> None:
    source, group = topics.create(), fresh_name("group")
    path = tmp_path / "pipeline.toml"
    path.write_text(
        f"""
        name = "copies"
        [sources.lines]
        topic = "{source}"
        format = "text"
        dead_letter = "{fresh_name("dead")}"
        starting_offsets = "group"
        group = "{group}"
        [sinks.copy]
        topic = "{topics.create()}"
        """
    )
    send(bootstrap, source, [b"%d" % number for number in range(100)])
    # Whoever had the group before has read two records.
    place = TopicPartition(source, 0)
    assert not any(admin.alter_group_offsets(group, {place: 2}).values())
    groups = [group, f"{group}-dead-letters-lines"]
    deadline = time.monotonic() + 3 * PATIENCE_SECONDS

    def is_told(report: RunReport) -> bool:
        told = [committed(admin, one).get(place) for one in groups]
        assert time.monotonic() < deadline, f"{groups} are at {told}: {report}"
        return told == [100, 100]

    report = run_file(spark, bootstrap, path, until=is_told)
    assert [query.input_rows for query in report.queries] == [98, 98]


def committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    found = admin.list_group_offsets(group)
    return {partition: row.offset for partition, row in found.items()}  # type: ignore[union-attr]


def test_a_query_that_begins_late_begins_where_the_others_did(
    bootstrap: str, topics: Topics, admin: Admin, tmp_path: Path
) -> None:
    source, group = topics.create(), fresh_name("group")
    path = tmp_path / "pipeline.toml"
    text = f"""
        [sources.last]
        topic = "{source}"
        starting_offsets = "latest"
        [sources.gone_on]
        topic = "{source}"
        starting_offsets = "group"
        group = "{group}"
        [sinks.copy]
        topic = "copies"
        """
    path.write_text(text)
    send(bootstrap, source, [b"x"] * 5)
    place = TopicPartition(source, 0)
    assert not any(admin.alter_group_offsets(group, {place: 3}).values())
    first = fix_starts(load_pipeline(path), bootstrap)
    send(bootstrap, source, [b"x"] * 5)
    assert not any(admin.alter_group_offsets(group, {place: 9}).values())
    again = fix_starts(load_pipeline(path), bootstrap)
    starts = [json.loads(one.starting_offsets) for one in again.sources]
    assert starts == [{source: {"0": 5}}, {source: {"0": 3}}]
    assert again == first
    topics.delete(source)
    topics.create_named(source)
    recreated = fix_starts(load_pipeline(path), bootstrap)
    starts = [json.loads(one.starting_offsets) for one in recreated.sources]
    assert starts == [{source: {"0": -2}}] * 2, "a recreated topic is read from its beginning"


def test_the_status_counts_every_record_of_a_recreated_topic_as_not_read(
    bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source = topics.create()
    path = tmp_path / "pipeline.toml"
    path.write_text(f'[sources.lines]\ntopic = "{source}"\n[sinks.copy]\ntopic = "copies"\n')
    pipeline = load_pipeline(path)
    place = TopicPartition(source, 0)
    read_to = StreamOffset({place: 5}, {source: topics.id_of(source)})
    for folder, text in (("offsets", json.dumps(read_to.to_json())), ("commits", "{}")):
        file = Path(pipeline.checkpoint) / "copy" / folder / "0"
        file.parent.mkdir(parents=True)
        file.write_text(f"v1\n{{}}\n{text}\n")
    send(bootstrap, source, [b"x"] * 7)
    assert [one.lag for one in read_status(pipeline, bootstrap).queries] == [2]
    topics.delete(source)
    topics.create_named(source)
    send(bootstrap, source, [b"x"] * 7)
    (query,) = read_status(pipeline, bootstrap).queries
    assert query.lag == 7
    assert [one.position for one in query.partitions] == [None]
