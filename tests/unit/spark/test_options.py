"""Options of reading: what is taken, and the messages about what is not."""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path

import pytest

from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.spark import options as reference
from moldau.spark.options import SourceOptions, without_table_properties
from moldau.spark.rules.offset_ranges import TriggerLimits
from moldau.spark.rules.offsets import NamedBound, SpecificOffsets, SpecificTimestamps

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
TOPIC = {**BASE, "subscribe": "clicks"}


def read(**given: str) -> SourceOptions:
    return SourceOptions.read({**TOPIC, **given})


def test_options_have_the_defaults_of_sparks_own_source() -> None:
    options = read()
    assert options.bootstrap == "127.0.0.1:9092"
    assert options.subscribe == ("clicks",)
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.starting_bound is None
    assert options.ending_bound is NamedBound.LATEST
    assert options.limits == TriggerLimits()
    assert not options.read_committed


def test_names_are_known_in_lower_case_as_spark_gives_them() -> None:
    assert read(maxoffsetspertrigger="5", INCLUDEHEADERS="true").limits.max_offsets == 5


def test_options_survive_the_way_to_a_task() -> None:
    given = {"startingOffsets": '{"clicks": {"0": 3}}', "kafka.isolation.level": "read_committed"}
    options = pickle.loads(pickle.dumps(read(**given)))
    assert options.starting_bound == SpecificOffsets(offsets={TopicPartition("clicks", 0): 3})
    assert options.read_committed


def test_a_time_goes_before_times_and_times_before_offsets() -> None:
    times = '{"clicks": {"0": 7}}'
    offsets = '{"clicks": {"0": 3}}'
    by_times = read(startingOffsetsByTimestamp=times, startingOffsets=offsets)
    assert by_times.starting_bound == SpecificTimestamps(
        times_ms={TopicPartition("clicks", 0): 7}, if_none_latest=False
    )
    by_time = read(
        startingTimestamp="9",
        startingOffsetsByTimestamp=times,
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp="11",
        endingOffsets=offsets,
    )
    assert by_time.starting_bound == SpecificTimestamps(times_ms=9, if_none_latest=True)
    assert by_time.ending_bound == SpecificTimestamps(times_ms=11)


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("250", 250)]
)
def test_durations_are_read_as_spark_writes_them(text: str, milliseconds: int) -> None:
    assert read(maxTriggerDelay=text).limits.max_delay_ms == milliseconds


def test_kafkas_own_options_reach_the_client() -> None:
    options = read(**{"kafka.request.timeout.ms": "1234", "kafka.group.id": "g"})
    assert options.client.request_timeout_ms == 1234
    assert options.group_id == "g"


def test_kafkas_options_without_effect_are_said_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "moldau.spark"):
        read(**{"kafka.receive.buffer.bytes": "65536"})
    assert "kafka.receive.buffer.bytes is not known" in caplog.text


def test_options_that_mean_nothing_here_are_accepted() -> None:
    read(groupIdPrefix="x", **{"fetchOffset.numRetries": "3"})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "clicks"}, "kafka.bootstrap.servers is not set"),
        (BASE, "which topics? set subscribe, subscribePattern or assign"),
        ({**TOPIC, "subscribePattern": "c.*"}, "subscribe and subscribePattern are set"),
        ({**BASE, "subscribePattern": "("}, "subscribePattern=( is no regular expression"),
        ({**BASE, "assign": '{"a": 1}'}, 'assign={"a": 1} is not of the form {"topic": [0, 1]}'),
        ({**TOPIC, "startingOffset": "latest"}, "did you mean startingOffsets?"),
        ({**TOPIC, "startingOffsets": "newest"}, "is neither earliest, latest, group nor JSON"),
        ({**TOPIC, "endingOffsets": "earliest"}, "would read nothing"),
        ({**TOPIC, "endingOffsets": '{"clicks": {"0": -2}}'}, "where reading cannot end"),
        ({**TOPIC, "startingOffsets": "group"}, "needs groupId"),
        ({**TOPIC, "failOnDataLoss": "maybe"}, "failOnDataLoss=maybe is neither true nor false"),
        ({**TOPIC, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0 is less than 1"),
        ({**TOPIC, "maxTriggerDelay": "soon"}, "is no duration like 30s"),
        ({**TOPIC, "startingOffsetsByTimestampStrategy": "guess"}, "is not one of error, latest"),
        ({**TOPIC, "path": "/data"}, "load() takes no path"),
        ({**TOPIC, "topic": "clicks"}, "topic is an option of writing"),
        ({**TOPIC, "kafka.auto.offset.reset": "latest"}, "set startingOffsets"),
        ({**TOPIC, "kafka.value.deserializer": "x"}, "values come as binary"),
        ({**TOPIC, "kafka.security.protocol": "SECURE"}, "security.protocol=SECURE is not one of"),
        ({**TOPIC, "kafka.request.timeout.ms": "soon"}, "request.timeout.ms=soon is not a whole"),
    ],
)
def test_a_wrong_option_is_refused_with_a_message(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        SourceOptions.read(given)


@pytest.mark.parametrize(
    "given", [{"startingOffsets": "latest"}, {"startingOffsets": '{"clicks": {"0": -1}}'}]
)
def test_a_batch_does_not_begin_at_the_end(given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="a batch would read nothing"):
        read(**given).require_batch()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is set, but a stream has no end"),
        ({"endingTimestamp": "5"}, "endingTimestamp is set, but a stream has no end"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            "minOffsetsPerTrigger=9 is more than maxOffsetsPerTrigger=5",
        ),
    ],
)
def test_a_stream_refuses_what_makes_no_sense_for_it(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read(**given).require_stream()


def test_options_of_a_query_are_as_they_are() -> None:
    given = {"Subscribe": "clicks", "owner": "alice"}
    assert without_table_properties(given) == {"subscribe": "clicks", "owner": "alice"}


def test_of_a_table_only_its_options_are_left() -> None:
    given = {
        "provider": "moldau",
        "owner": "alice",
        "location": "file:/warehouse/clicks",
        "option.subscribe": "clicks",
        "option.kafka.bootstrap.servers": "b:1",
        "startingOffsets": "earliest",
    }
    assert without_table_properties(given) == {
        "subscribe": "clicks",
        "kafka.bootstrap.servers": "b:1",
        "startingoffsets": "earliest",
    }


PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def test_the_committed_table_is_the_rendered_one() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert reference.BEGIN in page
    assert page == reference.renew_reference(page), (
        "run: python -m moldau.spark.options docs/spark.md"
    )


def test_every_option_has_a_row_with_its_default() -> None:
    table = reference.render_reference()
    assert all(f"| `{name}` |" in table for name in SourceOptions.declarations())
    assert "| `failOnDataLoss` | `true` |" in table
