"""Which topics a pipeline writes exactly once when its file leaves that open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau
import moldau.testing
from moldau.client.admin_values import OffsetSpec
from moldau.model import TopicPartition
from moldau.spark.pipeline.delivery import choose_delivery
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.model import TopicSink
from support.pipelines import run_file, send
from support.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINKS = {
    "plain": "",
    "refused": "options = { exactlyOnce = false }",
    "demanded": "options = { exactlyOnce = true }",
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
    sinks = "\n".join(
        f'[sinks.{name}]\ntopic = "copy-{name}"\n{more}' for name, more in SINKS.items()
    )
    said: list[str] = []
    pipeline = load_pipeline(declare(folder, "lines", sinks))
    marked = choose_delivery(pipeline, bootstrap, said.append).sinks
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
