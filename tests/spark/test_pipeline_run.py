"""Pipelines and writers on real Spark, against a real broker: exact contents of what arrives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import moldau
from moldau.cli.main import run as run_command
from moldau.errors import ConfigurationError
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.run import PipelineFailedError
from moldau.spark.pipeline.status import RunReport, read_status
from support.pipelines import run_file, send
from support.topics import Topics, fresh_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # a busy machine takes its time over Spark's first batches

SHAPES = """
from pyspark.sql import functions as F

def shape(clicks):
    return clicks.select("user", F.upper("page").alias("page"), "at", "_offset", "_partition")
"""


def click(number: int) -> bytes:
    at = f"2026-11-15T{number % 3:02d}:00:00Z"
    return json.dumps({"user": f"u{number}", "page": f"/p{number % 5}", "at": at}).encode()


def declare(folder: Path, source: str, sinks: str, *, more: str = "") -> Path:
    (folder / "shapes.py").write_text(SHAPES)
    path = folder / "pipeline.toml"
    path.write_text(
        f"""
        name = "clicks"
        [sources.clicks]
        topic = "{source}"
        format = "json"
        schema = "user STRING, page STRING, at TIMESTAMP"
        {more}
        {sinks}
        """
    )
    return path


def users_in_topic(bootstrap: str, topic: str) -> list[str]:
    values = moldau.read_table(topic, bootstrap=bootstrap)["value"].to_pylist()
    return sorted(json.loads(value)["user"] for value in values)


def users_in_lake(folder: Path) -> list[str]:
    return sorted(pq.read_table(folder)["user"].to_pylist())


def test_clicks_become_a_feed_a_lake_and_dead_letters_once_and_then_continuously(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, feed, dead = topics.create(2), topics.create(2), fresh_name("dead")
    path = declare(
        tmp_path,
        source,
        f"""
        [transforms.shaped]
        python = "shapes:shape"
        [transforms.kept]
        sql = "SELECT * FROM shaped WHERE page <> '/P4'"
        [sinks.feed]
        topic = "{feed}"
        key = "user"
        [sinks.lake]
        parquet = "lake"
        time = "at"
        trigger = "1s"
        """,
        more=f'dead_letter = "{dead}"',
    )
    send(bootstrap, source, [*map(click, range(200)), b"{no json", b'{"at": "no time"}', None])
    report = run_file(spark, bootstrap, path)
    expected = sorted(f"u{number}" for number in range(200) if number % 5 != 4)
    assert report.state == "finished"
    assert users_in_topic(bootstrap, feed) == expected
    assert users_in_lake(tmp_path / "lake") == expected
    assert sorted(folder.name for folder in (tmp_path / "lake/date=2026-11-15").iterdir()) == [
        "hour=00",
        "hour=01",
        "hour=02",
    ]
    letters = moldau.read_table(dead, bootstrap=bootstrap).to_pylist()
    assert {letter["value"] for letter in letters} == {b"{no json", b'{"at": "no time"}'}
    told = {header["key"]: header["value"] for header in letters[0]["headers"]}
    assert told["moldau.topic"] == source.encode()
    assert {"moldau.reason", "moldau.partition", "moldau.offset"} <= told.keys()

    send(bootstrap, source, map(click, range(200, 400)))
    expected = sorted(f"u{number}" for number in range(400) if number % 5 != 4)
    report = run_file(spark, bootstrap, path, until=_has_read(200, queries=3))
    assert report.state == "stopped"
    assert users_in_topic(bootstrap, feed) == expected
    assert users_in_lake(tmp_path / "lake") == expected
    assert moldau.read_table(dead, bootstrap=bootstrap).num_rows == 2
    status = read_status(load_pipeline(path), bootstrap)
    assert [query.lag for query in status.queries] == [0, 0, 0]
    assert status.runner is None


def _has_read(rows: int, *, queries: int) -> Callable[[RunReport], bool]:
    def is_so(report: RunReport) -> bool:
        return sum(query.input_rows >= rows for query in report.queries) == queries

    return is_so


def test_without_a_dead_letter_topic_a_record_that_does_not_parse_stops_the_pipeline(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source = topics.create()
    send(bootstrap, source, [click(0), b"{no json"])
    path = declare(tmp_path, source, '[sinks.lake]\nparquet = "lake"\ntime = "at"')
    with pytest.raises(PipelineFailedError, match=f"not JSON .* in {source}-0 at offset 1; mend"):
        run_file(spark, bootstrap, path)
    assert not list((tmp_path / "lake").glob("date=*"))


def test_counts_of_windows_reach_a_topic_and_late_rows_are_counted(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, counts = topics.create(), topics.create()
    path = declare(
        tmp_path,
        source,
        f"""
        [transforms.per_minute]
        sql = '''SELECT window.start AS minute, page, count(*) AS clicks FROM clicks
                 GROUP BY window(at, '1 minute'), page'''
        [sinks.feed]
        topic = "{counts}"
        key = "page"
        output_mode = "update"
        """,
        more='watermark = { column = "at", delay = "1 minute" }',
    )
    send(bootstrap, source, [_at("2026-11-15T10:00:10Z"), _at("2026-11-15T10:00:50Z")])
    run_file(spark, bootstrap, path)
    send(bootstrap, source, [_at("2026-11-15T11:00:00Z")])
    run_file(spark, bootstrap, path)
    send(bootstrap, source, [_at("2026-11-15T10:00:20Z")])
    report = run_file(spark, bootstrap, path)
    values = moldau.read_table(counts, bootstrap=bootstrap)["value"].to_pylist()
    found = [json.loads(value) for value in values]
    assert [(one["minute"][11:16], one["clicks"]) for one in found] == [("10:00", 2), ("11:00", 1)]
    assert report.queries[0].set_aside.late_records == 1


def _at(time: str) -> bytes:
    return json.dumps({"user": "u", "page": "/", "at": time}).encode()


def test_what_is_wrong_with_sql_and_columns_is_said_before_anything_runs(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    sink = '[sinks.lake]\nparquet = "lake"\n'
    wrong = declare(tmp_path, topics.create(), f'[transforms.t]\nsql = "SELECT x FROM y"\n{sink}')
    with pytest.raises(PipelineFailedError, match="TABLE_OR_VIEW_NOT_FOUND"):
        run_file(spark, bootstrap, wrong)
    without = declare(
        tmp_path, topics.create(), f'[transforms.t]\nsql = "SELECT user FROM clicks"\n{sink}'
    )
    with pytest.raises(ConfigurationError, match="has no column '_timestamp', only user"):
        run_file(spark, bootstrap, without)
    assert not (tmp_path / "lake").exists()


def test_a_frame_is_written_by_its_columns(
    spark: SparkSession, bootstrap: str, topics: Topics
) -> None:
    first, second = topics.create(3), topics.create()
    frame = spark.range(1000).selectExpr(
        f"IF(id % 2 = 0, '{first}', '{second}') AS topic",
        "CAST(id AS STRING) AS key",
        "CAST(id * id AS STRING) AS value",
        "array(struct('n' AS key, CAST('x' AS BINARY) AS value)) AS headers",
    )
    frame.write.format("moldau").option("kafka.bootstrap.servers", bootstrap).mode("append").save()
    for topic, rest in ((first, 0), (second, 1)):
        rows = moldau.read_table(topic, bootstrap=bootstrap).to_pylist()
        assert sorted((int(row["key"]), int(row["value"])) for row in rows) == [
            (number, number * number) for number in range(rest, 1000, 2)
        ]
        assert rows[0]["headers"] == [{"key": "n", "value": b"x"}]


@pytest.mark.parametrize(
    ("given", "mode", "message"),
    [
        ({"topic": "t", "exactlyOnce": "true"}, "append", "is for streams"),
        ({}, "append", "nothing says which topic"),
        ({"topic": "t"}, "overwrite", "cannot be overwritten"),
    ],
)
def test_spark_passes_on_why_a_write_is_refused(
    spark: SparkSession, bootstrap: str, given: dict[str, str], mode: str, message: str
) -> None:
    writer = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("moldau")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).options(**given).mode(mode)
    with pytest.raises(Exception, match=message):
        writer.save()


def test_status_is_told_by_the_command(
    bootstrap: str, topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = topics.create(2)
    send(bootstrap, source, map(click, range(10)))
    path = declare(tmp_path, source, '[sinks.lake]\nparquet = "lake"\ntime = "at"')
    assert run_command(["pipeline", "status", str(path), "--bootstrap", bootstrap]) == 0
    assert "lake, 10 records behind" in capsys.readouterr().out
    arguments = ["pipeline", "status", str(path), "--bootstrap", bootstrap, "--json"]
    assert run_command(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["running"], document["queries"][0]["lag"]) == (False, 10)
