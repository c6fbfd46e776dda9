from __future__ import annotations

import json

from moldau.spark import source_metrics


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


def test_offsets_are_taken_as_text_too() -> None:
    offsets = json.dumps({"clicks": {"0": 3}})
    assert source_metrics(progress(offsets, offsets))["maxOffsetsBehindLatest"] == "0"


def test_a_query_that_has_read_nothing_has_none() -> None:
    assert source_metrics(progress(None, {"clicks": {"0": 3}})) == {}
    assert source_metrics(progress({"clicks": {"0": 3}}, "null")) == {}
