"""What takers of a share group may be told, and what is noticed."""

from __future__ import annotations

from moldau.coordinators.shares.rules.in_flight_state import InFlightBatch, InFlightRecordState
from moldau.coordinators.shares.rules.records import DeliveryState
from moldau.model import AcknowledgeType, TopicPartition
from moldau.simulation.share_consumers import SeenLeader, ShareHistory

PLACE = TopicPartition("t", 0)
ACCEPT, REJECT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE


def make(limit: int = 2) -> tuple[ShareHistory, list[str]]:
    reported: list[str] = []
    return ShareHistory("s", limit, lambda rule, _: reported.append(rule)), reported


def led(
    epoch: int, start: int, count: int = 0, state: DeliveryState = DeliveryState.ACQUIRED
) -> SeenLeader:
    """One record right behind the start."""
    runs = (InFlightBatch(start, start + 1, InFlightRecordState(state, count)),) if count else ()
    return SeenLeader("broker-1", epoch, start, runs)


def test_a_record_comes_again_until_it_is_done() -> None:
    told, reported = make()
    told.receive(PLACE, [7], 1, 1.0)
    told.attempt(PLACE, 7, RELEASE)
    told.confirm(PLACE, 7, RELEASE, 1.5)
    told.receive(PLACE, [7], 2, 2.0)
    told.attempt(PLACE, 7, ACCEPT)
    told.confirm(PLACE, 7, ACCEPT, 2.5)
    told.check_end({PLACE: [7]}, None)
    assert not reported
    assert told.confirmed == 1


def test_what_was_asked_for_before_the_confirmation_may_come_after_it() -> None:
    told, reported = make()
    told.confirm(PLACE, 7, ACCEPT, 2.5)
    told.receive(PLACE, [7], 1, 2.4)
    assert not reported


def test_a_record_that_is_done_and_comes_again_is_noticed() -> None:
    for kind in (ACCEPT, REJECT):
        told, reported = make()
        told.confirm(PLACE, 7, kind, 2.5)
        told.receive(PLACE, [6, 7], 1, 2.6)
        assert reported == ["SHR-8"]


def test_a_record_of_no_committed_transaction_that_is_delivered_is_noticed() -> None:
    told, reported = make()
    told.receive(PLACE, [7], 1, 1.0)
    told.attempt(PLACE, 7, ACCEPT)
    told.check_end({PLACE: [7]}, None, {PLACE: [8]})
    assert not reported
    told.check_end({PLACE: []}, None, {PLACE: [7, 8]})
    assert reported == ["SHR-12"]


def test_after_an_alteration_everything_from_its_start_has_to_come_again() -> None:
    told, reported = make(limit=2)
    for offset in (6, 7, 8):
        told.receive(PLACE, [offset], 1, 1.0)
        told.attempt(PLACE, offset, ACCEPT)
        told.confirm(PLACE, offset, ACCEPT, 1.5)
    assert told.partitions == [PLACE]
    told.alter(PLACE, 7)
    told.confirm_alteration(PLACE, 2.0)
    told.receive(PLACE, [8], 1, 2.5, 2.4)
    told.attempt(PLACE, 8, ACCEPT)
    told.check_end({PLACE: [6, 7, 8]}, None)
    assert reported == ["SHR-9"]  # of 7


def test_what_lies_before_the_altered_start_is_given_to_nobody_who_joins_later() -> None:
    told, reported = make()
    told.alter(PLACE, 7)
    told.confirm_alteration(PLACE, 2.0)
    told.receive(PLACE, [6], 1, 1.9, 1.0)
    told.receive(PLACE, [6], 1, 2.5, 1.0)  # it was frozen, and does not know
    told.receive(PLACE, [7], 1, 2.5, 2.4)
    assert not reported
    told.receive(PLACE, [6], 1, 2.5, 2.4)
    assert reported == ["SHR-13"]


def test_the_start_goes_back_in_another_state_epoch_only() -> None:
    told, reported = make()
    told.see_leader(PLACE, led(4, 9))
    told.see_leader(PLACE, led(4, 2)._replace(state_epoch=1))
    told.see_leader(PLACE, led(4, 9))  # it does not know of the alteration
    assert not reported
    told.see_leader(PLACE, led(4, 1)._replace(state_epoch=1))
    assert reported == ["SHR-2"]


def test_too_many_deliveries_are_noticed() -> None:
    told, reported = make(limit=2)
    told.receive(PLACE, [7], 3, 1.0)
    assert reported == ["SHR-5"]


def test_a_record_that_nobody_had_is_noticed() -> None:
    told, reported = make()
    told.check_end({PLACE: [7]}, None)
    assert reported == ["SHR-9"]


def test_answers_that_nobody_saw_count_as_deliveries() -> None:
    told, reported = make(limit=3)
    told.receive(PLACE, [7], 1, 1.0)
    told.lose_answers(2)
    told.check_end({PLACE: [7]}, None)
    assert not reported


def test_a_record_that_was_not_accepted_has_a_letter() -> None:
    told, reported = make()
    told.attempt(PLACE, 6, ACCEPT)
    told.attempt(PLACE, 7, REJECT)
    told.attempt(PLACE, 8, REJECT)
    told.check_end({PLACE: [6, 7, 8]}, {(PLACE, 8)})
    assert reported == ["SHR-9"]


def test_a_start_that_goes_back_is_noticed_also_with_the_next_leader() -> None:
    told, reported = make()
    told.see_leader(PLACE, led(1, 10))
    told.see_leader(PLACE, led(2, 12))
    told.see_leader(PLACE, led(1, 10))  # was replaced, and does not know
    assert not reported
    told.see_leader(PLACE, led(3, 11))
    assert reported == ["SHR-2"]


def test_a_count_may_begin_anew_with_the_next_leader_only() -> None:
    told, reported = make()
    told.see_leader(PLACE, led(1, 5, count=2))
    told.see_leader(PLACE, led(2, 5, count=1))
    assert not reported
    told.see_leader(PLACE, led(2, 5, count=2))
    told.see_leader(PLACE, led(2, 5, count=1)._replace(loads=2))  # its session was lost
    assert not reported
    told.see_leader(PLACE, led(2, 5, count=2)._replace(loads=2))
    told.see_leader(PLACE, led(2, 5, count=1)._replace(loads=2))
    told.see_leader(PLACE, led(2, 5, count=1, state=DeliveryState.AVAILABLE)._replace(loads=2))
    assert reported == ["SHR-10", "SHR-10"]
