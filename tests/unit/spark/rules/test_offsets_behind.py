from __future__ import annotations

import json
from uuid import UUID

from moldau.model import TopicPartition
from moldau.spark import source_metrics
from moldau.spark.rules.offset_maps import StreamOffset


def progress(end: object, latest: object) -> dict[str, object]:
    return {"description": "…", "endOffset": end, "latestOffset": latest}


def test_the_metrics_are_those_of_sparks_own_source() -> None:
    found = source_metrics(
        progress({"clicks": {"0": 10, "1": 5}}, {"clicks": {"0": 10, "1": 9}, "new": {"0": 2}})
    )
    assert found == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "4",
        "avgOffsetsBehindLatest": "2.0",
    }


def test_nothing_of_a_recreated_topic_has_been_read() -> None:
    place = TopicPartition("clicks", 0)
    end = StreamOffset({place: 10}, {"clicks": UUID(int=1)}).to_json()
    latest = StreamOffset({place: 12}, {"clicks": UUID(int=2)}).to_json()
    assert source_metrics(progress(end, latest))["maxOffsetsBehindLatest"] == "12"


def test_offsets_are_taken_as_text_too() -> None:
    offsets = json.dumps({"clicks": {"0": 3}})
    assert source_metrics(progress(offsets, offsets))["maxOffsetsBehindLatest"] == "0"


def test_a_query_that_has_read_nothing_has_none() -> None:
    assert source_metrics(progress(None, {"clicks": {"0": 3}})) == {}
    assert source_metrics(progress({"clicks": {"0": 3}}, "null")) == {}
