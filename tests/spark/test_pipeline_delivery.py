"""Which topics a pipeline writes exactly once when its file leaves that open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

import moldau
import moldau.testing
from moldau.cli.main import run
from moldau.client.admin.values import OffsetSpec
from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.model import Delivery, TopicSink
from moldau.spark.pipeline.queries import choose_delivery, report_delivery
from moldau.spark.pipeline.run import RunOptions, plan_pipeline, run_pipeline
from support.pipelines import Watching, run_file, send
from support.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTED = "SELECT window.start AS at, count(*) AS n FROM lines GROUP BY window(_timestamp, '1 day')"
SINKS = {
    "plain": "",
    "refused": "options = { exactlyOnce = false }",
    "demanded": "options = { exactlyOnce = true }",
    "windowed": "",
    "updated": 'output_mode = "update"',
    "careless": 'options = { "kafka.acks" = "1" }',
}


@pytest.fixture(scope="module")
def able() -> Iterator[str]:
    settings = {
        "transaction.two.phase.commit.enable": "true",
        "transaction.state.log.num.partitions": "2",
    }
    with moldau.testing.broker(settings) as broker:
        yield broker.bootstrap


def declare(folder: Path, source: str, sinks: str) -> Path:
    path = folder / "pipeline.toml"
    path.write_text(f'name = "copies"\n[sources.lines]\ntopic = "{source}"\n{sinks}')
    return path


def chosen_of(bootstrap: str, folder: Path) -> tuple[set[str], list[str]]:
    """The names of the sinks that are marked, and what is said about it."""
    sinks = f'[transforms.counted]\nsql = "{COUNTED}"\n'
    for name, more in SINKS.items():
        read = "counted" if name == "windowed" else "lines"
        sinks += f'[sinks.{name}]\nfrom = "{read}"\ntopic = "copy-{name}"\n{more}\n'
    said: list[str] = []
    pipeline = load_pipeline(declare(folder, "lines", sinks))
    marked = choose_delivery(pipeline, bootstrap).sinks
    deliveries = dict.fromkeys(SINKS, cast("Delivery", "exactly once"))
    report_delivery(replace(pipeline, sinks=marked), deliveries, said.append)
    return {s.name for s in marked if isinstance(s, TopicSink) and s.prefers_exactly_once}, said


def test_brokers_that_can_are_asked_for_it_where_the_file_leaves_it_open(
    able: str, tmp_path: Path
) -> None:
    chosen, said = chosen_of(able, tmp_path)
    assert chosen == {"plain"}
    assert len(said) == 1
    assert "exactly once for readers of committed records: plain" in said[0]


def test_brokers_that_cannot_are_written_to_at_least_once(bootstrap: str, tmp_path: Path) -> None:
    assert chosen_of(bootstrap, tmp_path) == (set(), [])


def test_a_feed_is_written_in_transactions_then(
    spark: SparkSession, able: str, tmp_path: Path
) -> None:
    topics = Topics(able)
    source, feed = topics.create(), topics.create()
    values = [b"%d" % number for number in range(20)]
    send(able, source, values)
    path = declare(tmp_path, source, f'[sinks.feed]\ntopic = "{feed}"\n')
    run_file(spark, able, path)
    assert sorted(moldau.read_table(feed, bootstrap=able)["value"].to_pylist()) == sorted(values)
    with moldau.Admin(able) as admin:
        place = TopicPartition(feed, 0)
        end = admin.list_offsets({place: OffsetSpec.LATEST})[place]
    assert not isinstance(end, Exception)
    assert end.offset > len(values), "a marker follows what a transaction has written"


COUNTED_BY_A_FUNCTION = """
from pyspark.sql import functions as F

def count(lines):
    windows = lines.groupBy(F.window("_timestamp", "1 day")).count()
    return windows.select(F.col("count").cast("string").alias("value"))
"""


def test_a_windowed_feed_is_said_to_be_written_at_least_once(
    spark: SparkSession, able: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where only Spark sees that rows may be dropped."""
    topics = Topics(able)
    source, feed, copy = topics.create(), topics.create(), topics.create()
    send(able, source, [b"x"] * 3)
    (tmp_path / "counting_lines.py").write_text(COUNTED_BY_A_FUNCTION)
    transform = '[transforms.counted]\npython = "counting_lines:count"\nfrom = ["lines"]\n'
    feed_sink = f'[sinks.feed]\ntopic = "{feed}"\n'
    copy_sink = f'[sinks.copy]\nfrom = "lines"\ntopic = "{copy}"\n'
    path = declare(tmp_path, source, transform + feed_sink + copy_sink)
    text = path.read_text().replace(
        f'topic = "{source}"\n', f'topic = "{source}"\nwatermark = {{ delay = "1 s" }}\n'
    )
    path.write_text(text)
    watching = Watching()
    options = RunOptions(bootstrap=able, master="local[2]", once=True)
    report = run_pipeline(
        load_pipeline(path), options, stop=watching.stop, watcher=watching, spark=spark
    )
    assert [(one.name, one.delivery) for one in report.queries] == [
        ("feed", "at least once"),
        ("copy", "exactly once"),
    ]
    assert [one.split(" (")[0] for one in watching.said] == [
        "exactly once for readers of committed records: copy",
        "at least once: feed",
    ]
    assert run(["pipeline", "status", str(path), "--bootstrap", able]) == 0
    assert "feed, 0 records behind, written at least once\n" in capsys.readouterr().out

    path.write_text(text.replace(feed_sink, f"{feed_sink}options = {{ exactlyOnce = true }}\n"))
    with pytest.raises(ConfigurationError, match=r"sinks\.feed\.options\.exactlyOnce: .* remove"):
        plan_pipeline(spark, load_pipeline(path), options)
