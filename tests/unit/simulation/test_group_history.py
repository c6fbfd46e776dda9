"""What members of a group may be told, and what is noticed."""

from __future__ import annotations

from moldau.model import TopicPartition
from moldau.simulation.consumer_groups import (
    ConsumerGroupHistory,
    GroupHistory,
    StreamsGroupHistory,
)

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def make() -> tuple[GroupHistory, list[str]]:
    reported: list[str] = []
    return GroupHistory("g", lambda rule, text: reported.append(rule)), reported


def test_partitions_may_change_hands_from_generation_to_generation() -> None:
    group, reported = make()
    group.see_assignment(1, "a", [FIRST, SECOND])
    group.see_assignment(2, "a", [FIRST])
    group.see_assignment(2, "b", [SECOND])
    group.see_assignment(2, "a", [FIRST])
    assert not reported


def test_two_owners_in_one_generation_are_noticed() -> None:
    group, reported = make()
    group.see_assignment(2, "a", [FIRST, SECOND])
    group.see_assignment(2, "b", [SECOND])
    assert reported == ["GRP-6"]


def test_another_assignment_in_the_same_generation_is_noticed() -> None:
    group, reported = make()
    group.see_assignment(2, "a", [FIRST])
    group.see_assignment(2, "a", [SECOND])
    assert reported == ["GRP-6"]


def test_a_commit_that_was_sent_before_the_next_generation_may_be_answered_late() -> None:
    group, reported = make()
    group.see_assignment(1, "a", [FIRST])
    newest = group.newest_generation
    group.see_assignment(2, "b", [FIRST])
    group.accept_commit(2, 2, FIRST, 7)
    group.accept_commit(1, newest, FIRST, 6)
    assert not reported
    assert group.position(FIRST) == 7


def test_a_commit_of_a_former_generation_is_noticed() -> None:
    group, reported = make()
    group.see_assignment(1, "a", [FIRST])
    group.see_assignment(2, "b", [FIRST])
    group.accept_commit(1, group.newest_generation, FIRST, 6)
    assert reported == ["GRP-6"]


def test_a_position_that_went_back_is_noticed() -> None:
    group, reported = make()
    group.accept_commit(1, 1, FIRST, 6)
    group.see_position(FIRST, 6, at_least=group.position(FIRST))
    assert not reported
    group.see_position(FIRST, 5, at_least=group.position(FIRST))
    assert reported == ["GRP-8"]


def test_a_late_commit_is_noticed_when_another_member_has_owned_the_partition_since() -> None:
    reported: list[str] = []
    group = ConsumerGroupHistory("g", lambda rule, text: reported.append(rule))
    group.see_assignment(1, "a", [FIRST, SECOND])
    group.see_assignment(2, "a", [FIRST])
    group.see_assignment(2, "b", [SECOND])
    group.accept_commit(1, group.newest_of("a", FIRST), FIRST, 6)
    assert not reported
    group.accept_commit(1, group.newest_of("a", SECOND), SECOND, 6)
    assert reported == ["CGR-5"]


def test_two_owners_in_one_epoch_of_the_consumer_protocol_are_noticed() -> None:
    reported: list[str] = []
    group = ConsumerGroupHistory("g", lambda rule, text: reported.append(rule))
    group.see_assignment(1, "a", [FIRST, SECOND])
    group.see_assignment(2, "a", [FIRST])
    group.see_assignment(2, "b", [SECOND])
    group.see_owned(2, "b", [SECOND])
    assert not reported
    group.see_owned(2, "a", [FIRST, SECOND])
    assert reported == ["CGR-1"]


def test_a_task_that_somebody_still_has_is_given_to_nobody_else() -> None:
    reported: list[str] = []
    group = StreamsGroupHistory("w", lambda rule, _: reported.append(rule))
    group.give("a", [FIRST], 1.0, 1.1)
    group.give("b", [FIRST], 2.0, 2.1)
    group.see_member("a", [FIRST], 2.05)  # before the other one had it
    assert not reported
    group.see_member("a", [FIRST], 2.2)
    assert reported == ["STG-1"]


def test_a_task_comes_back_to_who_had_it_before() -> None:
    reported: list[str] = []
    group = StreamsGroupHistory("w", lambda rule, _: reported.append(rule))
    group.give("a", [FIRST], 1.0, 1.1)
    group.give("b", [FIRST], 2.0, 2.1)
    group.see_member("b", [FIRST], 2.2)
    group.give("a", [FIRST], 3.0, 3.1)
    group.see_member("a", [FIRST], 3.2)
    group.see_member("a", [], 3.3)
    assert not reported


def test_epochs_of_streams_members_have_rules_of_their_own() -> None:
    reported: list[str] = []
    group = StreamsGroupHistory("w", lambda rule, _: reported.append(rule))
    group.see_assignment(5, "a", [FIRST])
    group.see_assignment(5, "b", [FIRST])
    group.see_assignment(4, "a", [])
    group.accept_commit(3, group.newest_of("c", FIRST), FIRST, 1)
    assert reported == ["STG-1", "STG-2", "STG-4"]
