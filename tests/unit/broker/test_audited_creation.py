"""A topic that is made because somebody writes to it is a change like others."""

from __future__ import annotations

import json
from pathlib import Path

import moldau
import moldau.testing


def test_a_topic_made_on_demand_is_in_the_audit_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with (
        moldau.testing.broker({"audit.log.path": str(path)}) as broker,
        moldau.Producer(broker.bootstrap) as producer,
    ):
        producer.send("made", value=b"x").result(60)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    told = [(one["event"], one["request"]) for one in events if one["resource"] == "Topic:made"]
    assert told == [("changed", "Metadata")]
