"""What pipelines decide, without Spark and without files."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import ConfigurationError, InvariantViolation
from moldau.model import TopicPartition
from moldau.spark.pipeline.model import LakeSink, Pipeline, TopicSink, with_groups_of
from moldau.spark.pipeline.rules.declaration import folder_columns, read_pipeline, topic_columns
from moldau.spark.pipeline.rules.lake import (
    FileSize,
    JournalEntry,
    Move,
    batch_entry,
    count_late,
    decode_entry,
    encode_entry,
    find_batch_id,
    grow_columns,
    partition_values,
    plan_compaction,
    plan_moves,
)
from moldau.spark.pipeline.rules.queries import (
    BatchReport,
    QueryProgress,
    SetAside,
    Tally,
    add_batch,
    add_reports,
    decode_tally,
    encode_tally,
    explain_failure,
    has_lost_disk,
    is_outage,
    merge_positions,
    parse_offset_log,
    partition_lags,
    render_metrics,
    total_lag,
)
from moldau.spark.pipeline.rules.section import parse_size_bytes, parse_span_ms, spark_interval
from moldau.spark.rules.offsets import StreamOffset

QUERY = "1f3a9c04-0000-4000-8000-000000000000"
NOW = datetime(2026, 11, 15, 12, 30, tzinfo=UTC)

# Compaction


def test_files_are_left_alone_until_there_are_enough_small_ones() -> None:
    files = [FileSize(path=f"f{number}", size_bytes=10) for number in range(4)]
    assert plan_compaction(files, target_bytes=100, min_files=5) == []
    assert plan_compaction(files, target_bytes=100, min_files=4) == [("f0", "f1", "f2", "f3")]


def test_a_closed_folder_is_merged_as_soon_as_there_are_two() -> None:
    files = [FileSize(path=f"f{number}", size_bytes=10) for number in range(2)]
    plan = plan_compaction(files, target_bytes=100, min_files=8, is_closed=True)
    assert plan == [("f0", "f1")]


def test_large_files_stay_as_they_are() -> None:
    files = [FileSize(path="a", size_bytes=50), FileSize(path="b", size_bytes=49)]
    assert plan_compaction(files, target_bytes=100, min_files=2, is_closed=True) == []


@given(
    sizes=st.lists(st.integers(1, 200), max_size=30),
    target=st.integers(1, 200),
    is_closed=st.booleans(),
)
def test_no_merged_file_is_larger_than_the_target_and_none_is_merged_twice(
    sizes: list[int], target: int, is_closed: bool
) -> None:
    files = [FileSize(path=f"{n:03d}", size_bytes=size) for n, size in enumerate(sizes)]
    by_path = {one.path: one.size_bytes for one in files}
    plan = plan_compaction(files, target_bytes=target, min_files=3, is_closed=is_closed)
    merged = [path for group in plan for path in group]
    assert len(merged) == len(set(merged))
    for group in plan:
        assert len(group) > 1
        assert sum(by_path[path] for path in group) <= target


# Layout and journal


def test_the_names_of_published_files_follow_from_query_and_batch() -> None:
    staged = [
        "date=2026-11-15/hour=05/part-00001-x.parquet",
        "date=2026-11-15/hour=05/part-00000-x.parquet",
        "part-7.parquet",
        "_SUCCESS",
        "_temporary/0/part-9.parquet",
        "date=2026-11-15/hour=05/.part-00000-x.parquet.crc",
    ]
    moves = plan_moves(QUERY, 12, "_moldau/s", staged)
    assert [move.published for move in moves] == [
        "date=2026-11-15/hour=05/load-1f3a9c04-0000000012-0000.parquet",
        "date=2026-11-15/hour=05/load-1f3a9c04-0000000012-0001.parquet",
        "load-1f3a9c04-0000000012-0000.parquet",
    ]
    assert moves[0].staged == "_moldau/s/date=2026-11-15/hour=05/part-00000-x.parquet"


def test_a_batch_is_found_again_by_the_name_of_its_entry() -> None:
    assert find_batch_id(batch_entry(12)) == 12
    assert find_batch_id("compact.json") is None
    assert partition_values("date=2026-11-15/hour=05/x.parquet") == {
        "date": "2026-11-15",
        "hour": "05",
    }


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = JournalEntry(remove=("a", "b"), moves=(Move(staged="s/ü", published="p"),), row_count=7)
    assert decode_entry(encode_entry(entry), "x") == entry
    with pytest.raises(InvariantViolation, match="no entry"):
        decode_entry("{}", "x")


# Columns


def test_a_lake_grows_by_columns_and_by_nothing_else() -> None:
    assert grow_columns({"a": "int"}, {"b": "string", "a": "int"}, "lake") == {
        "a": "int",
        "b": "string",
    }
    with pytest.raises(ConfigurationError, match="lake has the column 'a', which is no longer"):
        grow_columns({"a": "int"}, {"b": "string"}, "lake")
    with pytest.raises(ConfigurationError, match="'a' as int, now it is bigint; cast it to int"):
        grow_columns({"a": "int"}, {"a": "bigint"}, "lake")


def topic_sink(**given: str) -> TopicSink:
    return TopicSink(
        name="s",
        input="i",
        topic="t",
        key=given.get("key"),
        value=given.get("value"),
        headers=None,
        partition=given.get("partition"),
        trigger=None,
        output_mode="append",
        options=(),
    )


def lake_sink(**given: str) -> LakeSink:
    return LakeSink(
        name="s",
        input="i",
        format="parquet",
        folder="/lake",
        time=given.get("time", "_timestamp"),
        partition_by=given.get("by", "hour"),  # type: ignore[arg-type]
        target_file_bytes=1,
        compact=True,
        compact_min_files=2,
        late_after_ms=0,
        trigger=None,
    )


def test_a_value_is_json_of_all_columns_but_those_about_the_record() -> None:
    assert topic_columns(topic_sink(key="user"), ["user", "n", "_offset"]) == [
        "CAST(user AS STRING) AS key",
        "to_json(struct(`user`, `n`)) AS value",
    ]


def test_columns_that_are_named_like_a_records_parts_are_taken_as_they_are() -> None:
    assert topic_columns(topic_sink(), ["key", "value", "headers"]) == [
        "`key`",
        "`value`",
        "`headers`",
    ]
    assert topic_columns(topic_sink(value="x", partition="p"), ["x"]) == [
        "x AS value",
        "CAST(p AS INT) AS partition",
    ]
    with pytest.raises(ConfigurationError, match="no column to write"):
        topic_columns(topic_sink(), ["_key", "_offset"])


def test_folders_are_made_of_the_time_of_a_row() -> None:
    assert list(folder_columns(lake_sink(), ["_timestamp"])) == ["date", "hour"]
    assert list(folder_columns(lake_sink(by="day"), ["_timestamp"])) == ["date"]
    assert folder_columns(lake_sink(by="none"), []) == {}
    with pytest.raises(ConfigurationError, match=r"sinks.s.time: 'i' has no column 'at', only x"):
        folder_columns(lake_sink(time="at"), ["x"])
    with pytest.raises(ConfigurationError, match="has a column 'date'"):
        folder_columns(lake_sink(), ["_timestamp", "date"])


# Progress


def test_a_batch_counts_once_however_often_it_is_reported() -> None:
    reports = [
        BatchReport(batch_id=0, input_rows=10, duration_ms=500),
        BatchReport(batch_id=1, input_rows=30, duration_ms=1500),
        BatchReport(batch_id=1, input_rows=0, duration_ms=0),
        BatchReport(batch_id=2, input_rows=0, duration_ms=0),
    ]
    progress = add_reports(add_reports(QueryProgress(name="q"), reports[:2]), reports)
    assert (progress.batches, progress.input_rows) == (2, 40)
    assert progress.rows_per_second == 20.0
    assert progress.last_batch_id == 1


def test_a_batch_that_is_repeated_is_in_the_tally_once() -> None:
    one = add_batch(Tally(), 3, SetAside(late_records=5, dead_letters=5))
    assert add_batch(one, 3, SetAside(late_records=5, dead_letters=5)) == one
    two = add_batch(one, 7, SetAside(late_records=2, records_without_time=1))
    assert two.total == SetAside(late_records=7, records_without_time=1, dead_letters=5)
    assert (two.counts(7), two.counts(8)) == (True, False)


def test_a_tally_is_read_as_it_was_written_and_may_lack_a_figure() -> None:
    tally = Tally(batch_id=4, total=SetAside(late_records=1, untraced_rows=2))
    assert decode_tally(encode_tally(tally), "x") == tally
    assert decode_tally('{"batch": 2, "late_records": 1}', "x").total == SetAside(late_records=1)
    with pytest.raises(InvariantViolation, match="no tally"):
        decode_tally("[]", "x")


def test_positions_are_read_from_sparks_offset_log() -> None:
    text = 'v1\n{"batchWatermarkMs":0}\n{"a":{"0":5,"1":7}}\n-\n{"a":{"0":3},"b":{"2":1}}\n'
    assert merge_positions(parse_offset_log(text, {})) == {"a": {0: 3, 1: 7}, "b": {2: 1}}


def test_a_recreated_topic_has_no_position_in_sparks_offset_log() -> None:
    old, new = UUID(int=1), UUID(int=2)
    offset = StreamOffset({TopicPartition(one, 0): 5 for one in ("a", "b")}, {"a": old, "b": old})
    text = f"v1\n{{}}\n{json.dumps(offset.to_json())}\n"
    assert parse_offset_log(text, {"a": old, "b": new}) == [{"a": {0: 5}}]
    assert parse_offset_log(text, {}) == [{"a": {0: 5}, "b": {0: 5}}]


def test_lag_is_what_is_there_and_has_not_been_read() -> None:
    bounds = {TopicPartition("t", 0): (10, 50), TopicPartition("t", 1): (5, 9)}
    lags = partition_lags({"t": {0: 2}}, bounds)
    assert [one.lag for one in lags] == [40, 4]
    assert total_lag(partition_lags({"t": {0: 50, 1: 9}}, bounds)) == 0


def test_metrics_have_a_line_for_each_query() -> None:
    queries = [
        QueryProgress(
            name="lake",
            batches=2,
            input_rows=9,
            set_aside=SetAside(late_records=8680),
            extra={"late_rows": 3},
        ),
        QueryProgress(name='q"', batches=1),
    ]
    text = render_metrics("p", queries, updated_ms=1500, is_running=True)
    assert 'moldau_pipeline_input_rows_total{pipeline="p",query="lake"} 9\n' in text
    assert 'moldau_pipeline_batches_total{pipeline="p",query="q\\""} 1\n' in text
    assert 'moldau_pipeline_late_rows_total{pipeline="p",query="lake"} 3\n' in text
    assert 'moldau_pipeline_late_records_total{pipeline="p",query="lake"} 8680\n' in text
    assert 'moldau_pipeline_running{pipeline="p"} 1\n' in text


def test_rows_are_late_when_their_hour_was_over_long_ago() -> None:
    rows = {
        "date=2026-11-15/hour=12": 1,
        "date=2026-11-15/hour=10": 10,
        "date=2026-11-14": 100,
        "date=__HIVE_DEFAULT_PARTITION__/hour=05": 1000,
        "": 10000,
    }
    assert count_late(rows, now=NOW, late_after=timedelta(hours=1)) == 110


# Quantities and failures


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("128MB", 128_000_000), ("1.5 KiB", 1536), ("2 gib", 2**31)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "span_ms", "interval"),
    [
        ("500ms", 500, "500 milliseconds"),
        ("30s", 30_000, "30 seconds"),
        ("10 minutes", 600_000, "600 seconds"),
        ("1 Hour", 3_600_000, "3600 seconds"),
        ("2d", 172_800_000, "172800 seconds"),
    ],
)
def test_spans(text: str, span_ms: int, interval: str) -> None:
    assert parse_span_ms(text) == span_ms
    assert spark_interval(span_ms) == interval


@pytest.mark.parametrize("text", ["", "soon", "1 fortnight", "s", "-1s"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no span of time"):
        parse_span_ms(text)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: [USER_RAISED_EXCEPTION] "
            "sources.clicks: the value is not JSON SQLSTATE: P0001\nat x.y",
            "q failed: sources.clicks: the value is not JSON",
        ),
        (
            "[PYTHON_ERROR] Traceback (most recent call last):\n  File x\n"
            "moldau.errors.ConfigurationError: the lake has moved\n\nDuring handling:\n"
            "UnboundLocalError: no 'reader'\nat java",
            "q failed: the lake has moved",
        ),
        (
            "Traceback (most recent call last):\n  File x\nValueError: bad\n",
            "q failed: ValueError: bad",
        ),
        ("[TABLE_OR_VIEW_NOT_FOUND] no `x`. SQLSTATE: 42P01; line 1", "q failed: [TABLE_OR_VIEW_"),
        ("", "q failed: Spark does not say why"),
        (
            "java.io.IOException: No space left on device\n\tat x",
            "q failed: the disk is full: that",
        ),
    ],
)
def test_a_failure_is_one_message(said: str, message: str) -> None:
    explained = explain_failure("q", said)
    assert explained.startswith(message)
    assert "\n" not in explained


def test_a_query_that_lost_its_cluster_is_told_from_one_that_is_wrong() -> None:
    assert is_outage("x\nmoldau.errors.ClusterUnreachableError: no broker answers at any of x\n")
    assert is_outage("moldau.errors.DeliveryTimeoutError: 3 records")
    assert not is_outage("moldau.errors.ConfigurationError: no broker answers")


def test_a_disk_is_lost_where_a_broker_that_is_there_has_its_replica_offline() -> None:
    assert has_lost_disk(offline_replicas=(2, 3), brokers=(1, 2))
    assert not has_lost_disk(offline_replicas=(3,), brokers=(1, 2))


# Groups


def test_each_query_has_a_group_and_that_of_the_first_sink_is_the_one_named() -> None:
    document = {
        "sources": {"a": {"topic": "a"}, "b": {"topic": "b", "group": "own"}},
        "sinks": {"first": {"topic": "x"}, "second": {"topic": "y"}},
    }
    pipeline = read_pipeline(document, default_name="p", folder="", option_fault=lambda *_: None)
    assert isinstance(pipeline, Pipeline)
    found = {
        query: [one.group for one in with_groups_of(pipeline, query).sources]
        for query in ("first", "second", "dead-letters-a")
    }
    assert found == {
        "first": ["pipeline-p", "own"],
        "second": ["pipeline-p-second", "own-second"],
        "dead-letters-a": ["pipeline-p-dead-letters-a", "own-dead-letters-a"],
    }
