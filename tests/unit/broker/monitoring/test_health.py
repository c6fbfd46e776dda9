"""When a broker is ready, and why not."""

from __future__ import annotations

import pytest

from moldau.broker.monitoring.endpoint import Readiness, find_unready

READY = {"is_serving": True, "is_registered": True, "holds_lease": True}


def test_a_broker_that_serves_what_it_leads_is_ready() -> None:
    assert find_unready(Readiness(**READY)) == []


def test_a_failed_disk_alone_does_not_make_it_unready() -> None:
    assert find_unready(Readiness(**READY, failed_directories=("/a",))) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"is_serving": False}, "starting"),
        ({"is_stopping": True}, "stopping"),
        ({"is_registered": False}, "registered"),
        ({"holds_lease": False}, "coordination store"),
        ({"unopened": tuple(f"t-{number}" for number in range(9))}, "and 4 more"),
    ],
)
def test_each_reason_is_said(change: dict[str, object], word: str) -> None:
    (reason,) = find_unready(Readiness(**{**READY, **change}))
    assert word in reason
