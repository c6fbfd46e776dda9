"""Options of consumers."""

from __future__ import annotations

import pytest

from moldau.config.client_options import ConsumerOptions
from moldau.config.option import OffsetReset, ResetTo
from moldau.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", OffsetReset(ResetTo.EARLIEST)),
        ("latest", OffsetReset(ResetTo.LATEST)),
        ("error", OffsetReset(ResetTo.ERROR)),
        ("none", OffsetReset(ResetTo.ERROR)),
        ("by_duration:PT1H", OffsetReset(ResetTo.DURATION, 3_600_000)),
        ("by_duration:P2DT3H4M5.5S", OffsetReset(ResetTo.DURATION, 183_845_500)),
        ("by_duration:PT0.25S", OffsetReset(ResetTo.DURATION, 250)),
    ],
)
def test_where_to_begin(text: str, expected: OffsetReset) -> None:
    assert ConsumerOptions.read({"auto_offset_reset": text}).auto_offset_reset == expected


@pytest.mark.parametrize(
    "text", ["", "first", "earliest:", "by_duration", "by_duration:1h", "by_duration:P", "PT1H"]
)
def test_where_to_begin_has_to_make_sense(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"auto\.offset\.reset"):
        ConsumerOptions.read({"auto_offset_reset": text or " "})


def test_defaults_are_kafkas() -> None:
    options = ConsumerOptions.read({})
    assert options.session_timeout_ms == 45_000
    assert options.max_poll_interval_ms == 300_000
    assert options.max_partition_fetch_bytes == 1 << 20
    assert options.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert str(options.auto_offset_reset) == "latest"


def test_heartbeats_come_more_often_than_sessions_end() -> None:
    with pytest.raises(ConfigurationError, match="heartbeat"):
        ConsumerOptions.read({"session_timeout_ms": 3_000, "heartbeat_interval_ms": 3_000})


def test_a_wrong_name_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigurationError, match="max_poll_records"):
        ConsumerOptions.read({"max_poll_record": 5})


def test_at_least_one_assignor_is_needed() -> None:
    with pytest.raises(ConfigurationError, match="names nothing"):
        ConsumerOptions.read({"partition_assignment_strategy": ()})
