"""What a branch has to be, from plain values."""

from __future__ import annotations

from moldau.model import TopicPartition
from moldau.simulation.history import ClusterHistory, StoredBatch
from moldau.simulation.operations import find_branch_fault

ORIGIN = [
    StoredBatch(0, 2, 0, b"one"),
    StoredBatch(2, 3, 0, b"two"),
    StoredBatch(3, 5, 3, b"three"),
    StoredBatch(5, 6, 5, b"later"),
]
OWN = StoredBatch(3, 4, 4, b"own")


def test_a_branch_has_the_beginning_of_its_origin_and_its_own_behind() -> None:
    assert find_branch_fault([*ORIGIN[:2], OWN], ORIGIN, 3, None) is None
    assert find_branch_fault([], ORIGIN, 3, None) is None
    assert find_branch_fault(ORIGIN[:3], ORIGIN, 3, None) is None


def test_other_bytes_gaps_and_what_the_origin_has_not_are_no_branch() -> None:
    other = ORIGIN[1]._replace(content=b"TWO")
    assert find_branch_fault([ORIGIN[0], other], ORIGIN, 3, None) is not None
    assert find_branch_fault(ORIGIN[1:2], ORIGIN, 3, None) is not None
    assert find_branch_fault(ORIGIN[:3], ORIGIN[:2], 3, None) is not None
    assert find_branch_fault([OWN, ORIGIN[2]], ORIGIN, 3, None) is not None


def test_what_a_power_loss_took_of_the_origin_the_branch_may_have() -> None:
    again = [*ORIGIN[:2], StoredBatch(3, 4, 4, b"written again")]
    assert find_branch_fault(ORIGIN[:3], again, 3, 3) is None
    assert find_branch_fault(ORIGIN[:3], again, 3, None) is not None


def test_what_was_promised_of_the_origin_is_promised_of_the_branch() -> None:
    history = ClusterHistory()
    source, target = TopicPartition("t", 0), TopicPartition("t.b1", 0)
    history.acknowledge(source, 0, [b"a:0", b"a:1", b"a:2"])
    history.branch(source, target, 2)
    assert history.promised_end(target) == 2
    history.check_final_log(target, "somebody", {0: b"a:0", 1: b"a:1"}, 0)
    assert not history.violations
    history.check_final_log(target, "somebody", {0: b"a:0"}, 0)
    assert [one.rule for one in history.violations] == ["REP-3"]
