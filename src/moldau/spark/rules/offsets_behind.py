"""What Spark's own Kafka source puts under `metrics` in a `StreamingQueryProgress`. A rule.

Spark asks no source in Python for metrics, so the place stays empty with ours. But the offsets are
in the progress, and the metrics follow from them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.spark.rules.offset_maps import StreamOffset, find_recreated, without_topics

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import SourceProgress


def source_metrics(source: SourceProgress | Mapping[str, object]) -> dict[str, str]:
    """How many offsets a stream is behind, with the names and the form of Spark's own source.

    `source` is one of `query.lastProgress.sources`, or the same as JSON. Empty while Spark has no
    offsets to tell: before the first batch, and with Spark 4.0 and 4.1, which do not ask for the
    latest.
    """
    end, newest = _offset(source, "endOffset"), _offset(source, "latestOffset")
    latest = newest.offsets
    ends = without_topics(end.offsets, find_recreated(end.topic_ids, newest.topic_ids))
    behind = [max(latest[one] - end, 0) for one, end in ends.items() if one in latest]
    behind += [end for one, end in latest.items() if one not in ends]  # not read from yet
    if not end.offsets or not latest:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind, default=0)),
        "maxOffsetsBehindLatest": str(max(behind, default=0)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind) if behind else 0.0),
    }


def _offset(source: SourceProgress | Mapping[str, object], name: str) -> StreamOffset:
    found = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if isinstance(found, str):
        found = json.loads(found) if found and found != "null" else None
    return StreamOffset.from_json(found or {})
