"""Pipeline files: what is read from them, and the messages about what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from moldau.cli.main import run
from moldau.cli.pipeline import Lines, format_name, format_query
from moldau.errors import ConfigurationError
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.model import (
    LakeSink,
    PythonTransform,
    SqlTransform,
    TopicSink,
    describe_delivery,
    describe_flow,
)
from moldau.spark.pipeline.rules.queries import BatchReport, QueryProgress, SetAside

WHOLE = """
name = "clicks"
bootstrap = "127.0.0.1:9092"
mode = "once"

[sources.clicks]
topic = "clicks"
format = "json"
schema = "user STRING, at TIMESTAMP"
dead_letter = "clicks-unreadable"
headers = true
watermark = { column = "at", delay = "10 minutes" }
options = { maxOffsetsPerTrigger = 1000, kafka.fetch.max.bytes = 1 }

[sources.users]
topics = ["users", "guests"]

[transforms.joined]
sql = "SELECT * FROM clicks"

[transforms.shaped]
python = "shapes:shape"
from = ["joined", "users"]

[sinks.feed]
topic = "derived"
key = "user"
trigger = "30s"
output_mode = "update"

[sinks.lake]
parquet = "lake"
from = "joined"
time = "at"
partition_by = "day"
target_file_size = "64MiB"
late_after = "2h"

[spark]
spark.sql.shuffle.partitions = 2
"""

SMALL = """
[sources.clicks]
topic = "clicks"
[sinks.copy]
topic = "copied"
"""


def write(folder: Path, text: str, name: str = "pipeline.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def faults(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(ConfigurationError) as raised:
        load_pipeline(path)
    return str(raised.value).replace(str(path), "FILE")


def test_everything_in_a_file_is_read(tmp_path: Path) -> None:
    pipeline = load_pipeline(write(tmp_path, WHOLE))
    clicks, users = pipeline.sources
    assert (pipeline.name, pipeline.mode) == ("clicks", "once")
    assert pipeline.spark == (("spark.sql.shuffle.partitions", "2"),)
    assert clicks.watermark is not None
    assert (clicks.watermark.column, clicks.watermark.delay) == ("at", "600 seconds")
    assert clicks.options == (("maxOffsetsPerTrigger", "1000"), ("kafka.fetch.max.bytes", "1"))
    assert clicks.include_headers
    assert users.topics == ("users", "guests")
    assert pipeline.transforms == (
        SqlTransform(name="joined", sql="SELECT * FROM clicks"),
        PythonTransform(
            name="shaped", module="shapes", function="shape", inputs=("joined", "users")
        ),
    )
    feed, lake = pipeline.sinks
    assert isinstance(feed, TopicSink)
    assert (feed.input, feed.trigger, feed.output_mode) == ("shaped", "30 seconds", "update")
    assert isinstance(lake, LakeSink)
    assert (lake.input, lake.partition_by) == ("joined", "day")
    assert (lake.target_file_bytes, lake.late_after_ms) == (64 * 1024 * 1024, 7_200_000)


def test_what_depends_on_a_misspelt_format_is_no_fault_of_its_own(tmp_path: Path) -> None:
    text = """
[sources.clicks]
topic = "clicks"
format = "jsn"
schema = "user STRING"
dead_letter = "clicks-unreadable"
registry = "http://127.0.0.1:8081"
[sinks.copy]
topic = "copied"
"""
    told = faults(tmp_path, text)
    assert "'jsn' is not one of" in told
    assert "binary values" not in told
    assert "values of this format" not in told


def test_paths_are_relative_to_the_file_and_the_name_is_the_files(tmp_path: Path) -> None:
    pipeline = load_pipeline(
        write(tmp_path, SMALL.replace('topic = "copied"', 'parquet = "a/lake"'), "copy.toml")
    )
    assert pipeline.name == "copy"
    assert pipeline.checkpoint == str(tmp_path / "checkpoints/copy")
    assert pipeline.lake_sinks[0].folder == str(tmp_path / "a/lake")
    assert pipeline.sources[0].group == "pipeline-copy"


def test_yaml_says_the_same(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    text = "name: p\nsources: {clicks: {topic: clicks}}\nsinks: {copy: {topic: copied}}\n"
    by_yaml = load_pipeline(write(tmp_path, text, "p.yaml"))
    assert by_yaml == load_pipeline(write(tmp_path, f'name = "p"\n{SMALL}'))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('topic = "clicks"', 'topci = "clicks"', "sources.clicks.topci: there is no such key; did"),
        ('topic = "clicks"', "topic = 3", "sources.clicks.topic: 3 is not a text; put it in quo"),
        ('topic = "clicks"', 'topic = "a b"', "contains a character other than ASCII letters"),
        (
            'topic = "clicks"',
            'topic = "clicks"\ntopic_pattern = "c.*"',
            "sources.clicks.topic: give exactly one of topic, topics and topic_pattern",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nformat = "jsn"',
            "'jsn' is not one of binary, text, json, avro, registry; did you mean json",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nformat = "json"',
            "sources.clicks.schema: is missing; JSON values need their columns",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nformat = "avro"\nschema = "user STRING"',
            "sources.clicks.schema: an Avro schema is JSON",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nformat = "registry"',
            "sources.clicks.registry: is missing; give its address",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nsubject = "clicks-value"',
            "sources.clicks.subject: is about a schema registry; set registry",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nformat = "json"\nschema = "a INT"\nregistry = "http://h"',
            "the registry has it; remove one of schema and registry",
        ),
        (
            'topic = "clicks"',
            'topics = ["clicks", "more"]\nformat = "registry"\nregistry = "http://h"',
            "sources.clicks.subject: is missing; several topics need to be told",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nformat = "avro"\nschema = \'"string"\'',
            'sources.clicks.schema: is not the schema of a record; write it like {"type": "record"',
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nformat = "avro"\n'
            'schema = \'{"type": "record", "name": "C", "fields": [{"name": "user"}]}\'',
            "sources.clicks.schema: the field 'user' has no type; add one",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\noptions = { maxOffsetsPerTriger = 10 }',
            "sources.clicks.options.maxOffsetsPerTriger: maxoffsetspertriger is not an option of "
            "reading with format moldau; did you mean maxOffsetsPerTrigger?",
        ),
        ('topic = "clicks"', "topics = []", "sources.clicks.topics: names nothing"),
        (
            'topic = "clicks"',
            'topic = "clicks"\ndead_letter = "clicks"\nformat = "text"',
            "sources.clicks.dead_letter: 'clicks' is read by this source",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nwatermark = { column = "at" }',
            "sources.clicks.watermark.delay: is missing",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\nstarting_offsets = "begin"',
            "'begin' is not one of earliest, latest, group",
        ),
        (
            'topic = "clicks"',
            'topic = "clicks"\noptions = { subscribe = "x" }',
            "sources.clicks.options.subscribe: set it with topic or topics instead",
        ),
        ("[sources.clicks]", "[sources.1st-one]", "sources.1st-one: SQL could not name it"),
        ('topic = "copied"', "", "sinks.copy.topic: give exactly one of topic, parquet and delta"),
        ('topic = "copied"', 'topic = "clicks"', "'clicks' is a source as well"),
        ('topic = "copied"', 'parquet = "s3://b/l"', "sinks.copy.parquet: s3:// is not served"),
        (
            'topic = "copied"',
            'topic = "copied"\nfrom = "clickz"',
            "sinks.copy.from: there is no source or transform 'clickz'; did you mean clicks?",
        ),
        (
            'topic = "copied"',
            'topic = "copied"\ntrigger = "soon"',
            "sinks.copy.trigger: 'soon' is no span of time; give one like 30s",
        ),
        (
            'topic = "copied"',
            'topic = "copied"\noptions = { exactlyOnce = "maybe" }',
            "sinks.copy.options.exactlyOnce: exactlyOnce is true or false, not 'maybe'",
        ),
        (
            'topic = "copied"',
            'topic = "copied"\noptions = { kafka.lingr.ms = 5 }',
            "sinks.copy.options.kafka.lingr.ms: the producer has no such option",
        ),
        (
            'topic = "copied"',
            'parquet = "l"\ntarget_file_size = "big"',
            "sinks.copy.target_file_size: 'big' is no size; give one like 128MB",
        ),
        (
            'topic = "copied"',
            'parquet = "l"\ncompact_min_files = 1',
            "sinks.copy.compact_min_files: 1 is not a whole number of 2 or more",
        ),
    ],
)
def test_a_fault_is_a_message_with_file_key_and_remedy(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    said = faults(tmp_path, SMALL.replace(before, after))
    assert said.startswith("FILE")
    assert message in said


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        ("", "transforms.t.sql: give exactly one of sql and python"),
        ('python = "shape"', "transforms.t.python: 'shape' names no function; write module:funct"),
        ('python = "a:b"\nfrom = "t"', "transforms.t.from: there is no source or transform 't'"),
        ('sql = "SELECT 1"\nfrom = "clicks"', "transforms.t.from: SQL names what it reads"),
    ],
)
def test_a_faulty_transform_is_named(tmp_path: Path, transform: str, message: str) -> None:
    assert message in faults(tmp_path, f"{SMALL}\n[transforms.t]\n{transform}\n")


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    said = faults(tmp_path, '[sources.clicks]\nformat = "json"\n')
    first, *messages = said.splitlines()
    assert first == "FILE has 3 faults:"
    assert [message.split(": ")[0] for message in messages] == [
        "  sources.clicks.schema",
        "  sources.clicks.topic",
        "  sinks",
    ]


def test_names_of_sources_and_transforms_do_not_meet(tmp_path: Path) -> None:
    said = faults(tmp_path, f'{SMALL}\n[transforms.Clicks]\nsql = "SELECT 1"\n')
    assert "transforms.Clicks: there is another of this name" in said


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.toml", "name = ", "is not TOML"),
        ("p.yaml", "a: [", "is not YAML"),
        ("p.yaml", "just text", "is not a table of keys"),
    ],
)
def test_a_file_that_is_no_document_says_where(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_pipeline(write(tmp_path, text, name))


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        load_pipeline(tmp_path / "nothing.toml")


# The command


def test_check_says_what_a_file_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "check", str(write(tmp_path, WHOLE))]) == 0
    printed = capsys.readouterr().out
    assert "  feed            (clicks -> joined) + users, guests -> shaped -> derived\n" in printed
    assert "                  at least once\n" in printed
    assert f"  lake            clicks -> joined -> {tmp_path / 'lake'}\n" in printed
    assert "  dead letters    clicks -> clicks-unreadable\n" in printed
    assert "  late records    clicks -> clicks-unreadable, and counted\n" in printed
    assert "were not checked: --plan has Spark check them" in printed


def test_check_tells_machines_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "check", str(write(tmp_path, SMALL)), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["flows"], document["planned"]) == ({"copy": "clicks -> copied"}, False)
    assert document["delivery"]["copy"].startswith("exactly once where the brokers allow")


@pytest.mark.parametrize(
    ("sql", "output_mode", "delivery"),
    [
        ("SELECT a FROM clicks WHERE a IS DISTINCT FROM 1", "append", "exactly once"),
        ("SELECT a, 'group by window(' FROM clicks -- GROUP BY", "append", "exactly once"),
        ("SELECT a FROM clicks", "update", None),
        ("SELECT a, count(*) FROM clicks GROUP BY a", "append", None),
        ("SELECT DISTINCT a FROM clicks", "append", None),
        ("SELECT a, window(at, '1 minute') FROM clicks", "append", None),
    ],
)
def test_check_refuses_exactly_once_where_a_topic_is_written_batch_by_batch(
    tmp_path: Path, sql: str, output_mode: str, delivery: str | None
) -> None:
    """Also behind a further transform."""
    text = (
        f'[sources.clicks]\ntopic = "clicks"\n[transforms.first]\nsql = """{sql}"""\n'
        '[transforms.second]\nsql = "SELECT * FROM first"\n[sinks.feed]\ntopic = "feed"\n'
        f'output_mode = "{output_mode}"\n'
    )
    open_to_brokers = load_pipeline(write(tmp_path, text))
    said = describe_delivery(open_to_brokers, open_to_brokers.sinks[0])
    demanding = f"{text}options = {{ exactlyOnce = true }}\n"
    if delivery is None:
        assert said == "at least once"
        told = faults(tmp_path, demanding)
        assert "sinks.feed.options.exactlyOnce: a topic " in told
        assert "remove exactlyOnce = true, or write the rows to a lake" in told
    else:
        assert said.startswith("exactly once where")
        pipeline = load_pipeline(write(tmp_path, demanding))
        assert describe_delivery(pipeline, pipeline.sinks[0]) == delivery


@pytest.mark.parametrize(
    ("sql", "flow"),
    [
        ("SELECT users FROM clicks, users", "clicks + users"),
        ("SELECT 'FROM users' FROM CLICKS -- JOIN users", "clicks"),
        ("SELECT * FROM (SELECT a, users FROM clicks) x WHERE users > 1", "clicks"),
        ("WITH x AS (SELECT * FROM `clicks`) SELECT * FROM x JOIN users u ON x.a = u.a", None),
        ("SELECT count(DISTINCT a, users) FROM clicks GROUP BY a, users", "clicks"),
    ],
)
def test_what_sql_reads_is_told_by_the_names_of_its_tables(
    tmp_path: Path, sql: str, flow: str | None
) -> None:
    more = f'[sources.users]\ntopic = "users"\n[transforms.t]\nsql = """{sql}"""\n'
    pipeline = load_pipeline(write(tmp_path, more + SMALL))
    found = describe_flow(pipeline, pipeline.sinks[0])
    assert set(found.removesuffix(" -> t -> copied").split(" + ")) == set(
        (flow or "clicks + users").split(" + ")
    )


@pytest.mark.parametrize(
    ("more", "late"),
    [
        ("", "drop"),
        ('dead_letter = "x"', "dead_letter"),
        ('dead_letter = "x"\nlate = "drop"', "drop"),
    ],
)
def test_late_records_go_to_dead_letters_where_there_are_any_unless_the_file_says_otherwise(
    tmp_path: Path, more: str, late: str
) -> None:
    text = f'[sinks.s]\ntopic = "t"\n[sources.c]\ntopic = "c"\nformat = "text"\n{more}\n'
    assert load_pipeline(write(tmp_path, text)).sources[0].late == late


def test_late_records_cannot_go_to_dead_letters_that_have_no_topic(tmp_path: Path) -> None:
    text = '[sinks.s]\ntopic = "t"\n[sources.c]\ntopic = "c"\nlate = "dead_letter"\n'
    assert "sources.c.late: nothing says which topic; set dead_letter" in faults(tmp_path, text)


def test_check_fails_with_the_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "check", str(write(tmp_path, "bootstrp = 'x'"))]) == 1
    assert "bootstrp: there is no such key; did you mean bootstrap?" in capsys.readouterr().err


def test_run_says_what_to_install_where_there_is_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("moldau.spark.session_factory.find_spec", lambda name: None)
    assert run(["pipeline", "run", str(write(tmp_path, SMALL))]) == 1
    assert "pip install 'moldau[spark]'" in capsys.readouterr().err


def test_what_a_query_has_done_is_told_in_a_line() -> None:
    extra = {"loaded_rows": 1200, "loaded_bytes": 2_500_000, "late_rows": 3, "merged_files": 2}
    lake = QueryProgress(name="lake", batches=2, input_rows=1201, extra=extra)
    assert format_query(lake) == (
        "1,201 records read in 2 batches; 1,200 rows loaded (2.5 MB), 3 of them late; "
        "2 files fewer after merging"
    )
    single = QueryProgress(name="lake", batches=1, input_rows=1, extra={"loaded_rows": 1})
    assert format_query(single) == "1 record read in 1 batch; 1 row loaded (0.0 MB)"
    letters = QueryProgress(name="dead-letters-clicks", batches=1, input_rows=7)
    assert format_name(letters.name) == "dead letters of clicks"
    assert format_query(letters) == "7 records looked at in 1 batch"
    windows = QueryProgress(name="w", set_aside=SetAside(late_records=8680, dead_letters=8680))
    assert format_query(windows).endswith(
        "; in all runs, 8,680 came after their window was closed, 8,680 went to dead letters"
    )


def test_a_log_has_a_line_for_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.on_batch("feed", BatchReport(batch_id=3, input_rows=12_000, duration_ms=840))
    lines.say("no broker answers")
    assert capsys.readouterr().err == (
        "feed: batch 3, 12,000 records in 0.8 s\nmoldau: no broker answers\n"
    )
