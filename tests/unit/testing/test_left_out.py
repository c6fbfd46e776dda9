"""What is said of the tests that did not run."""

from __future__ import annotations

from support.left_out import describe


def test_each_reason_is_said_once_with_how_to_get_it() -> None:
    said = describe(
        ["Skipped: there is no mvn to fetch Spark's Kafka connector with"]
        + ["Skipped: kcat is not installed"] * 3
        + ["systemd is not running"]
    )
    assert said[0].startswith("3: kcat is not installed (apt install kcat")
    assert "make interop" in said[1]
    assert said[2] == "1: systemd is not running"
