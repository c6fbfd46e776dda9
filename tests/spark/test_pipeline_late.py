"""Records that a pipeline drops: each is counted once, in all runs together, and none in silence.

The figures are compared with what is missing from the output, which is all that a user can see.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau
from moldau.cli.main import run as run_command
from moldau.errors import ConfigurationError
from moldau.spark.pipeline.dropped_records import QueryTally, RecordTracer
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.rules.queries import SetAside
from moldau.spark.pipeline.run import PipelineFailedError
from moldau.spark.pipeline.status import read_status
from support.pipelines import run_file, send
from support.topics import Topics, fresh_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # a busy machine takes its time over Spark's first batches

PER_MINUTE = """
[transforms.per_minute]
sql = '''SELECT window.start AS minute, page, count(*) AS clicks FROM clicks
         WHERE page <> '/hidden' GROUP BY window(at, '1 minute'), page'''
[sinks.feed]
topic = "{feed}"
output_mode = "update"
"""


def click(minute: int | None, page: str = "/", hour: int = 10) -> bytes:
    at = None if minute is None else f"2026-11-15T{hour}:{minute:02d}:30Z"
    return json.dumps({"page": page, "at": at}).encode()


def declare(folder: Path, source: str, rest: str, more: str = "") -> Path:
    path = folder / "pipeline.toml"
    path.write_text(
        f"""
        name = "late"
        [sources.clicks]
        topic = "{source}"
        format = "json"
        schema = "page STRING, at TIMESTAMP"
        watermark = {{ column = "at", delay = "1 minute" }}
        {more}
        {rest}
        """
    )
    return path


def counted(bootstrap: str, topic: str) -> int:
    """All clicks in the last counts of every minute and page."""
    counts: dict[tuple[str, str], int] = {}
    for value in moldau.read_table(topic, bootstrap=bootstrap)["value"].to_pylist():
        row = json.loads(value)
        counts[row["minute"], row["page"]] = row["clicks"]
    return sum(counts.values())


def set_aside(path: Path, bootstrap: str) -> dict[str, SetAside]:
    return {one.name: one.set_aside for one in read_status(load_pipeline(path), bootstrap).queries}


def test_thousands_of_late_records_are_counted_one_by_one_and_after_a_restart_as_well(
    spark: SparkSession,
    bootstrap: str,
    topics: Topics,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, feed = topics.create(2), topics.create()
    path = declare(tmp_path, source, PER_MINUTE.format(feed=feed))
    send(bootstrap, source, [click(0), click(30, hour=11)])
    run_file(spark, bootstrap, path)
    # The watermark is at 11:29:30. Twelve windows of two pages are far behind it.
    late = [click(number % 12, f"/{number % 2}") for number in range(8680)]
    good = [click(30, hour=11)] * 100
    send(bootstrap, source, [*late, *good, *[click(3, "/hidden")] * 50, *[click(None)] * 7, None])
    report = run_file(spark, bootstrap, path)
    sent = 2 + len(late) + len(good) + 7
    assert report.queries[0].set_aside == SetAside(late_records=8680, records_without_time=7)
    assert counted(bootstrap, feed) == sent - 8680 - 7

    send(bootstrap, source, [click(5)] * 20)
    assert run_file(spark, bootstrap, path).queries[0].set_aside.late_records == 8700
    assert counted(bootstrap, feed) == sent - 8680 - 7
    # Also when nothing is late, or nothing runs.
    send(bootstrap, source, [click(31, hour=11)])
    assert run_file(spark, bootstrap, path).queries[0].set_aside.late_records == 8700
    assert set_aside(path, bootstrap)["feed"].late_records == 8700
    assert run_command(["pipeline", "status", str(path), "--bootstrap", bootstrap]) == 0
    assert "8,700 came after their window was closed, 7 had no time" in capsys.readouterr().out


def test_late_records_go_to_the_dead_letter_topic_as_they_were(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, feed, dead = topics.create(), topics.create(), fresh_name("dead")
    more = f'dead_letter = "{dead}"'
    path = declare(tmp_path, source, PER_MINUTE.format(feed=feed), more)
    send(bootstrap, source, [click(0), click(30, hour=11), b"{no json"])
    run_file(spark, bootstrap, path)
    send(bootstrap, source, [*[click(1)] * 300, *[click(2, "/hidden")] * 5, click(None)])
    report = run_file(spark, bootstrap, path)
    found = {query.name: query.set_aside for query in report.queries}
    assert found == {
        "feed": SetAside(late_records=300, records_without_time=1, dead_letters=301),
        "dead-letters-clicks": SetAside(dead_letters=1),
    }
    letters = moldau.read_table(dead, bootstrap=bootstrap).to_pylist()
    assert Counter(letter["value"] for letter in letters) == {
        click(1): 300,
        click(None): 1,
        b"{no json": 1,
    }
    late = next(letter for letter in letters if letter["value"] == click(1))
    told = {header["key"]: header["value"].decode() for header in late["headers"]}
    assert told["moldau.reason"] == "the record came after the watermark had closed its window"
    assert (told["moldau.topic"], told["moldau.sink"]) == (source, "feed")


@pytest.mark.parametrize("is_counted", [False, True])
def test_a_batch_that_is_repeated_after_a_crash_is_counted_once(
    spark: SparkSession,
    bootstrap: str,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_counted: bool,
) -> None:
    """The crash comes between the tally and Spark's word that the batch is done, or before."""
    source, feed, dead = topics.create(), topics.create(), fresh_name("dead")
    path = declare(tmp_path, source, PER_MINUTE.format(feed=feed), f'dead_letter = "{dead}"')
    send(bootstrap, source, [click(0), click(30, hour=11)])
    run_file(spark, bootstrap, path)
    send(bootstrap, source, [click(number % 5) for number in range(400)])
    add = QueryTally.add

    def crash(tally: QueryTally, batch_id: int, found: SetAside) -> None:
        if is_counted:
            add(tally, batch_id, found)
        if found.late_records:
            raise OSError("the power is gone")

    with monkeypatch.context() as broken:
        broken.setattr(QueryTally, "add", crash)
        with pytest.raises(PipelineFailedError, match="the power is gone"):
            run_file(spark, bootstrap, path)
    assert set_aside(path, bootstrap)["feed"].late_records == (400 if is_counted else 0)
    run_file(spark, bootstrap, path)
    assert set_aside(path, bootstrap)["feed"].late_records == 400
    written = moldau.read_table(dead, bootstrap=bootstrap).num_rows
    assert written == (400 if is_counted else 800)  # at least once


NAMED = """
[transforms.per_minute]
sql = '''WITH shown AS (SELECT page, at FROM clicks WHERE page <> '/hidden')
         SELECT window.start AS minute, page, count(*) AS clicks FROM shown
         GROUP BY window(at, '1 minute'), page'''
[sinks.feed]
topic = "{feed}"
output_mode = "update"
"""


def test_records_are_followed_through_what_with_has_named(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, feed, dead = topics.create(), topics.create(), fresh_name("dead")
    path = declare(tmp_path, source, NAMED.format(feed=feed), f'dead_letter = "{dead}"')
    send(bootstrap, source, [click(1), click(30)])
    run_file(spark, bootstrap, path)
    late = [click(40), click(1), click(1), click(None), click(None, "/hidden"), click(1, "/hidden")]
    send(bootstrap, source, late)
    run_file(spark, bootstrap, path)
    expected = SetAside(late_records=2, records_without_time=1, dead_letters=3)
    assert set_aside(path, bootstrap)["feed"] == expected


def test_a_plan_that_cannot_be_followed_ends_nothing_unless_dead_letters_would_be_missing(
    spark: SparkSession,
    bootstrap: str,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source, feed, dead = topics.create(), topics.create(), fresh_name("dead")
    path = declare(tmp_path, source, PER_MINUTE.format(feed=feed))
    send(bootstrap, source, [click(0), click(30, hour=11)])
    run_file(spark, bootstrap, path)
    send(bootstrap, source, [*[click(1)] * 300, click(30, hour=11)])

    def fail(*_: object) -> None:
        raise TypeError("Spark has changed it")

    monkeypatch.setattr(RecordTracer, "rows_at", fail)
    found = run_file(spark, bootstrap, path).queries[0].set_aside
    assert found == SetAside(untraced_rows=1, unsearched_batches=1)
    assert counted(bootstrap, feed) == 3
    assert "was not searched for late records: feed failed: Spark has changed it" in caplog.text

    declare(tmp_path, source, PER_MINUTE.format(feed=feed), f'dead_letter = "{dead}"')
    send(bootstrap, source, [click(1)])
    with pytest.raises(PipelineFailedError, match="Spark has changed it"):
        run_file(spark, bootstrap, path)


SHAPES = """
def unlike(clicks):
    return clicks.dropDuplicates(["page", "at"])

def shift(clicks):
    def same(batches):
        yield from batches
    kept = clicks.select("page", "at")
    return kept.mapInPandas(same, kept.schema).withWatermark("at", "1 minute")
"""

OPERATORS = """
[sources.others]
topic = "{others}"
format = "json"
schema = "page STRING, at TIMESTAMP"
watermark = {{ column = "at", delay = "31 minutes" }}
[sources.unmarked]
topic = "{source}"
format = "json"
schema = "page STRING, at TIMESTAMP"

[transforms.shaped]
sql = "SELECT at, explode(array(1, 2, 3)) AS n FROM clicks"
[transforms.tumbling]
sql = "SELECT count(*) AS n FROM shaped GROUP BY window(at, '1 minute')"
[transforms.sliding]
sql = "SELECT count(*) AS n FROM clicks GROUP BY window(at, '60 minutes', '20 minutes')"
[transforms.sessions]
sql = "SELECT page, count(*) AS n FROM clicks GROUP BY session_window(at, '30 minutes'), page"
[transforms.unlike]
python = "late_shapes:unlike"
from = "clicks"
[transforms.united]
sql = '''SELECT count(*) AS n
         FROM (SELECT page, at FROM clicks UNION ALL SELECT page, at FROM others)
         GROUP BY window(at, '1 minute')'''
[transforms.joined]
sql = "SELECT a.page FROM clicks a JOIN others b ON a.page = b.page AND a.at = b.at"
[transforms.per_minute]
sql = "SELECT window, count(*) AS n FROM clicks GROUP BY window(at, '1 minute')"
[transforms.chained]
sql = "SELECT sum(n) AS n FROM per_minute GROUP BY window(window, '10 minutes')"
[transforms.shifted]
python = "late_shapes:shift"
from = "unmarked"
[transforms.untraced]
sql = "SELECT count(*) AS n FROM shifted GROUP BY window(at, '1 minute')"
"""


EXPECTED = {
    "tumbling": SetAside(late_records=620),  # once, however many rows are made of it
    "sliding": SetAside(late_records=610),  # those at 11:25 are in open windows only
    "sessions": SetAside(late_records=600),
    "unlike": SetAside(late_records=620),
    "chained": SetAside(late_records=620),
    "untraced": SetAside(untraced_rows=620),
    "united": SetAside(late_records=590 + 5),  # the slower watermark counts: 10:59:30
    "joined": SetAside(late_records=600 + 5),
}


@pytest.mark.parametrize(
    "names",
    [("tumbling", "sliding", "sessions"), ("unlike", "chained", "untraced"), ("united", "joined")],
)
def test_the_count_is_exact_for_every_operator_that_heeds_a_watermark(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path, names: tuple[str, ...]
) -> None:
    source, others, feed = topics.create(), topics.create(), topics.create()
    (tmp_path / "late_shapes.py").write_text(SHAPES)
    sinks = "\n".join(
        f'[sinks.{name}]\nfrom = "{name}"\ntopic = "{feed}"\nvalue = "\'x\'"' for name in names
    )
    path = declare(tmp_path, source, OPERATORS.format(source=source, others=others) + sinks)
    send(bootstrap, source, [click(0), click(30, hour=11)])
    send(bootstrap, others, [click(0), click(30, hour=11)])
    run_file(spark, bootstrap, path)
    # Watermarks are at 11:29:30 and, with the other source, 10:59:30.
    late = [click(number % 60, f"/{number % 7}") for number in range(600)]
    send(bootstrap, source, [*late, *[click(10, hour=11)] * 10, *[click(25, hour=11)] * 10])
    send(bootstrap, others, [click(58)] * 5)
    run_file(spark, bootstrap, path)
    assert set_aside(path, bootstrap) == {name: EXPECTED[name] for name in names}


def test_dead_letters_for_what_cannot_be_traced_to_records_are_refused(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    (tmp_path / "late_shapes.py").write_text(SHAPES)
    sink = """
    [transforms.shifted]
    python = "late_shapes:shift"
    [transforms.counts]
    sql = "SELECT count(*) AS n FROM shifted GROUP BY window(at, '1 minute')"
    [sinks.feed]
    topic = "never"
    """
    path = declare(tmp_path, topics.create(), sink, 'dead_letter = "letters"')
    with pytest.raises(ConfigurationError, match=r'clicks.late: sink .feed. .* set late = "drop"'):
        run_file(spark, bootstrap, path)
