"""What the history of a simulated cluster calls a broken promise."""

from __future__ import annotations

import pytest

from moldau.model import TopicPartition
from moldau.simulation.history import ClusterHistory, StoredBatch

T0 = TopicPartition("t", 0)


@pytest.fixture
def history() -> ClusterHistory:
    return ClusterHistory()


def rules(history: ClusterHistory) -> list[str]:
    return [violation.rule for violation in history.violations]


def batch(offset: int, epoch: int, content: bytes = b"x") -> StoredBatch:
    return StoredBatch(offset, offset + 1, epoch, content)


def test_a_history_without_contradictions_breaks_nothing(history: ClusterHistory) -> None:
    history.acknowledge(T0, 0, [b"a:0", b"a:1"])
    history.see(T0, 0, b"a:0")
    history.see(T0, 0, b"a:0")
    history.attempt_commit("g", 3)
    history.acknowledge_commit("g", 3)
    history.see_committed("g", 3, at_least=3)
    history.see_state(T0, 1, 0)
    history.see_state(T0, -1, 1)
    history.see_state(T0, 2, 2)
    history.see_log(T0, "one", [batch(0, 0), batch(1, 2)])
    history.see_log(T0, "other", [batch(0, 0), batch(1, 1, b"cut off later")])
    history.check_final_log(T0, "one", {0: b"a:0", 1: b"a:1"}, 0)
    history.check_order(T0, [b"a:0", b"b:0", b"a:1"])
    history.check_equal(T0, {"one": [batch(0, 0)], "other": [batch(0, 0), batch(1, 1)]}, 1)
    assert history.violations == []


def test_another_record_at_an_acknowledged_offset(history: ClusterHistory) -> None:
    history.acknowledge(T0, 5, [b"a:0"])
    history.acknowledge(T0, 5, [b"b:0"])
    assert rules(history) == ["REP-3"]


def test_a_consumer_that_reads_something_else_than_was_acknowledged(
    history: ClusterHistory,
) -> None:
    history.acknowledge(T0, 5, [b"a:0"])
    history.see(T0, 5, b"b:0")
    assert rules(history) == ["REP-3"]


def test_a_record_that_changes_after_it_was_seen(history: ClusterHistory) -> None:
    history.see(T0, 5, b"a:0")
    history.see(T0, 5, b"b:0")
    assert rules(history) == ["REP-3"]


def test_an_acknowledged_record_that_is_not_there_at_the_end(history: ClusterHistory) -> None:
    history.acknowledge(T0, 0, [b"a:0", b"a:1"])
    history.check_final_log(T0, "one", {0: b"a:0"}, 0)
    assert rules(history) == ["REP-3"]


def test_a_seen_record_that_is_not_there_at_the_end(history: ClusterHistory) -> None:
    history.see(T0, 1, b"b:1")
    history.check_final_log(T0, "one", {0: b"a:0"}, 0)
    assert rules(history) == ["REP-3"]


def test_a_position_that_goes_back_or_comes_from_nowhere(history: ClusterHistory) -> None:
    history.attempt_commit("g", 3)
    history.acknowledge_commit("g", 3)
    history.see_committed("g", 2, at_least=3)
    history.see_committed("g", 4, at_least=3)
    assert rules(history) == ["GRP", "GRP"]


def test_two_leaders_of_one_epoch(history: ClusterHistory) -> None:
    history.see_state(T0, 1, 7)
    history.see_state(T0, 2, 7)
    assert rules(history) == ["REP-1"]


def test_an_epoch_that_goes_back(history: ClusterHistory) -> None:
    history.see_state(T0, 1, 7)
    history.see_state(T0, 2, 6)
    assert rules(history) == ["REP-1"]


def test_two_batches_of_one_epoch_at_one_offset(history: ClusterHistory) -> None:
    history.see_log(T0, "one", [batch(3, 1, b"x")])
    history.see_log(T0, "other", [batch(3, 1, b"y")])
    assert rules(history) == ["REP-1"]


def test_replicas_that_differ_below_the_end(history: ClusterHistory) -> None:
    logs = {"one": [batch(0, 0), batch(1, 0)], "other": [batch(0, 0), batch(1, 1)]}
    history.check_equal(T0, logs, 2)
    assert rules(history) == ["REP-2"]
    history.check_equal(T0, logs, 1)
    assert rules(history) == ["REP-2"]


def test_a_record_that_is_there_twice_or_out_of_order(history: ClusterHistory) -> None:
    history.check_order(T0, [b"a:0", b"a:1", b"a:1"])
    history.check_order(T0, [b"a:1", b"a:0"])
    assert rules(history) == ["SEQ-1", "SEQ-1"]
