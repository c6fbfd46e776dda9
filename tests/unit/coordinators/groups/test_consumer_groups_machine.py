"""Consumer groups (KIP-848) with members that come, go, crash and do not hear answers.

Whatever happens, no two members of a group own a partition at the same time, and when everything
is quiet again everybody has its target.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from consumer_group_world import CLICKS, GROUP, IDS, ORDERS, World, image_of
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinators.groups.rules.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    common,
    overlap,
)
from moldau.coordinators.groups.rules.classic_group import ClassicGroup
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup, ConsumerGroupState
from moldau.coordinators.groups.rules.consumer_records import MemberState
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    CodeAnswer,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DeleteGroup,
    ExpireOffsets,
    GroupEvent,
    GroupProtocol,
    Join,
    JoinAnswer,
    PartitionsAnswer,
)
from moldau.coordinators.groups.rules.records import CommittedOffset
from moldau.errors import ErrorCode

# One step at a time


def test_the_first_member_gets_everything_and_a_second_one_what_the_first_gives_up() -> None:
    world = World()
    first = world.join("a")
    assert (first.epoch, first.assigned) == (1, {CLICKS: frozenset({0, 1, 2, 3})})
    assert first.heartbeat_interval_ms == 5_000
    second = world.join("b")
    assert (second.epoch, second.assigned) == (2, {})
    asked = world.beat("a", 1)
    assert (asked.epoch, asked.assigned) == (1, {CLICKS: frozenset({0, 1})})
    everything = {CLICKS: frozenset({0, 1, 2, 3})}
    for owned in (None, everything):
        assert world.beat("a", 1, owned=owned).epoch == 1
        assert world.beat("b", 2).assigned is None
    given_up = world.beat("a", 1, owned={CLICKS: frozenset({0, 1})})
    assert (given_up.epoch, given_up.assigned) == (2, None)
    assert world.beat("b", 2).assigned == {CLICKS: frozenset({2, 3})}
    assert world.group.state is ConsumerGroupState.STABLE


def test_what_a_member_gave_up_for_one_who_has_gone_since_is_its_own_again_at_once() -> None:
    world = World()
    world.join("a")
    world.join("b")
    world.beat("a", 1)
    world.beat("b", LEAVING_EPOCH)
    back = world.beat("a", 1, owned={CLICKS: frozenset({0, 1})})
    assert (back.epoch, back.assigned) == (3, {CLICKS: frozenset({0, 1, 2, 3})})


def test_who_does_not_give_partitions_up_in_time_is_removed() -> None:
    world = World(consumer_session_timeout_ms=1_000_000)
    world.join("a", rebalance_timeout_ms=10_000)
    world.join("b")
    world.beat("a", 1)
    world.wait(9_999)
    assert "a" in world.group.subscriptions
    world.wait(1)
    assert "a" not in world.group.subscriptions
    assert world.beat("a", 1).error is ErrorCode.unknown_member_id
    assert world.beat("b", 2).assigned == {CLICKS: frozenset({0, 1, 2, 3})}


def test_a_silent_member_is_removed_and_a_beating_one_is_not() -> None:
    world = World()
    world.join("a")
    world.join("b")
    for _ in range(20):
        world.wait(5_000)
        world.beat("b", world.group.assignment_of("b").epoch, owned=NO_PARTITIONS)
    assert list(world.group.subscriptions) == ["b"]


def test_settings_of_the_group_are_in_force_with_the_next_heartbeat_and_after_a_restart() -> None:
    world = World()
    plain = world.image
    assert world.join("a").heartbeat_interval_ms == 5_000
    settings = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "15000"}
    world.image = plain.with_group_configs({GROUP: settings, "others": {}})
    assert world.beat("a", 1).heartbeat_interval_ms == 15_000
    world.wait(59_999)
    assert "a" in world.group.subscriptions
    world.restart()
    world.wait(59_999)
    assert "a" in world.group.subscriptions
    world.wait(1)
    assert "a" not in world.group.subscriptions
    world.join("b")
    world.image = plain
    assert world.beat("b", world.group.epoch).heartbeat_interval_ms == 5_000
    world.wait(45_000)
    assert "b" not in world.group.subscriptions


def test_an_epoch_that_is_not_the_members_is_fenced_except_the_one_before() -> None:
    world = World()
    world.join("a")
    world.join("b")
    world.beat("a", 1)
    kept = {CLICKS: frozenset({0, 1})}
    assert world.beat("a", 1, owned=kept).epoch == 2  # an answer that is lost
    assert world.beat("a", 1, owned=kept).epoch == 2
    everything = {CLICKS: frozenset({0, 1, 2, 3})}
    for epoch, owned in ((1, everything), (1, None), (3, kept)):
        assert world.beat("a", epoch, owned=owned).error is ErrorCode.fenced_member_epoch


def test_a_static_member_comes_back_under_another_id_and_has_what_it_had() -> None:
    world = World()
    world.join("a", instance_id="one")
    world.join("b")
    before = world.group.target_of("a")
    assert world.join("c", instance_id="one").error is ErrorCode.unreleased_instance_id
    left = world.beat("a", STATIC_LEAVING_EPOCH, instance_id="one")
    assert (left.error, left.epoch) == (ErrorCode.none, STATIC_LEAVING_EPOCH)
    epoch = world.group.epoch
    back = world.join("c", instance_id="one")
    assert (back.error, back.epoch) == (ErrorCode.none, epoch)
    assert back.assigned == before == world.group.target_of("c")
    assert world.group.epoch == epoch
    fenced = world.beat("a", 1, instance_id="one")
    assert fenced.error is ErrorCode.fenced_instance_id


def test_a_static_member_that_does_not_come_back_is_removed_with_its_session() -> None:
    world = World()
    world.join("a", instance_id="one")
    world.beat("a", STATIC_LEAVING_EPOCH, instance_id="one")
    world.wait(45_000)
    assert world.group.state is ConsumerGroupState.EMPTY
    assert world.beat("a", 1, instance_id="one").error is ErrorCode.unknown_member_id


def test_topics_that_grow_appear_or_change_racks_are_assigned_anew() -> None:
    world = World()
    world.join("a", "clicks", "orders")
    assert world.group.target_of("a") == {CLICKS: frozenset(range(4))}
    world.image = image_of({"clicks": 5, "orders": 1})
    answer = world.beat("a", 1)
    assert answer.assigned == {CLICKS: frozenset(range(5)), ORDERS: frozenset({0})}
    epoch = world.group.epoch
    world.image = image_of({"clicks": 5, "orders": 1, "others": 3})
    world.beat("a", epoch)
    assert world.group.epoch == epoch
    world.image = image_of({"clicks": 5, "orders": 1}, rack="east")
    world.beat("a", epoch)
    assert world.group.epoch == epoch + 1
    world.image = image_of({"orders": 1})
    gone = world.beat("a", epoch + 1)
    assert gone.assigned == {ORDERS: frozenset({0})}


def test_more_names_than_could_be_logged_are_refused_before_anything_is_computed() -> None:
    world = World(member_metadata_max_bytes=100)
    assert world.join("a", *(f"topic-{number}" for number in range(10))).error is ErrorCode.none
    refused = world.join("b", *(f"topic-{number}" for number in range(100)))
    assert refused.error is ErrorCode.invalid_request
    assert refused.message == "the names of 100 topics are more than could be logged"
    assert set(world.group.subscriptions) == {"a"}


def test_what_a_group_is_subscribed_to_follows_its_members() -> None:
    world = World()
    world.join("a")
    assert world.group.wanted_topics == {"clicks"}
    world.join("b", "orders")
    assert world.group.wanted_topics == {"clicks", "orders"}
    world.beat("a", LEAVING_EPOCH)
    assert world.group.wanted_topics == {"orders"}
    world.beat("b", LEAVING_EPOCH)
    assert not world.group.is_subscribed_to("orders")


def test_regular_expressions_are_matched_here_and_follow_the_topics() -> None:
    pytest.importorskip("re2", reason="install moldau[regex]")
    world = World()
    world.image = image_of({"clicks": 1, "orders": 1, "__consumer_offsets": 1})
    answer = world.join("a", topics=None, regex="cl.*")
    assert answer.assigned == {CLICKS: frozenset({0})}
    answer = world.beat("a", 1, regex="[a-z]*")
    assert answer.assigned == {CLICKS: frozenset({0}), ORDERS: frozenset({0})}
    world.restart()
    assert world.group.is_subscribed_to("orders")
    assert not world.group.is_subscribed_to("__consumer_offsets")
    world.image = image_of({"clicks": 1})
    assert world.beat("a", 2).assigned == {CLICKS: frozenset({0})}
    assert world.beat("a", 2, owned={CLICKS: frozenset({0})}).epoch == 3
    world.beat("a", 3, regex="", topics=frozenset({"orders"}))
    assert world.group.regexes == {}
    bad = world.join("b", topics=None, regex="(")
    assert bad.error is ErrorCode.invalid_regular_expression
    assert bad.message is not None
    assert "(" in bad.message


def test_an_expression_stands_for_the_topics_that_its_member_may_know_of() -> None:
    pytest.importorskip("re2", reason="install moldau[regex]")
    world = World()
    world.image = image_of({"clicks": 1, "orders": 1})
    seen = {"clicks"}

    def beat(epoch: int, **values: object) -> ConsumerHeartbeatAnswer:
        return world.beat("a", epoch, may_see=seen.__contains__, **values)

    joined = world.join("a", topics=None, regex=".*", may_see=seen.__contains__)
    assert joined.assigned == {CLICKS: frozenset({0})}
    world.image = image_of({"clicks": 2, "orders": 1})
    assert beat(1).assigned == {CLICKS: frozenset({0, 1})}
    seen.add("orders")
    assert beat(2).assigned is None
    for _ in range(20):
        world.wait(30_000)
        answer = beat(2)
    assert answer.assigned == {CLICKS: frozenset({0, 1}), ORDERS: frozenset({0})}
    size = len(world.log)
    assert beat(3).epoch == 3
    assert len(world.log) == size


@pytest.mark.parametrize("writes_fail", [False, True])
def test_an_expression_has_a_topic_that_another_member_named_before_it_may_be_known(
    writes_fail: bool,
) -> None:
    """The group reads the same topics as before, and yet others read them."""
    pytest.importorskip("re2", reason="install moldau[regex]")
    world = World()
    world.image = image_of({"clicks": 1, "orders": 3})
    seen = {"clicks"}
    world.join("b", "orders")
    world.join("a", topics=None, regex=".*", may_see=seen.__contains__)
    world.beat("b", 1)
    seen.add("orders")
    for _ in range(20):
        world.wait(30_000)
        world.beat("b", world.group.assignment_of("b").epoch)
        world.writes_fail = writes_fail
        world.beat("a", world.group.assignment_of("a").epoch, may_see=seen.__contains__)
        world.writes_fail = False
    world.beat("a", world.group.assignment_of("a").epoch, may_see=seen.__contains__)
    shares = [world.group.target_of(one).get(ORDERS, frozenset()) for one in "ab"]
    assert [len(one) for one in shares] == [1, 2]


def test_an_expression_has_a_topic_that_was_made_before_somebody_left() -> None:
    """The group has seen the topics of now when it counts those who stay, but not looked for
    more."""
    pytest.importorskip("re2", reason="install moldau[regex]")
    world = World()
    world.image = image_of({"clicks": 1})
    world.join("a", topics=None, regex=".*")
    world.join("b")
    world.image = image_of({"clicks": 1, "orders": 1})
    world.beat("b", LEAVING_EPOCH)
    world.beat("a", 1)
    assert world.group.target_of("a") == {CLICKS: frozenset({0}), ORDERS: frozenset({0})}


@pytest.mark.parametrize(("topics", "regex"), [(frozenset(), None), (None, ""), (frozenset(), "")])
def test_a_member_may_join_and_want_nothing_by_now(
    topics: frozenset[str] | None, regex: str | None
) -> None:
    world = World()
    joined = world.join("a", topics=topics, regex=regex)
    assert joined.error is ErrorCode.none
    assert joined.assigned == {}
    assert world.beat("a", joined.epoch, topics=frozenset({"clicks"})).assigned is not None
    assert world.group.is_subscribed_to("clicks")


def test_what_makes_no_sense_is_refused_and_changes_nothing() -> None:
    world = World(consumer_max_size=1)
    world.join("a")
    size = len(world.log)
    refused = [
        (world.join("", "clicks"), ErrorCode.invalid_request),
        (world.join("b", topics=None), ErrorCode.invalid_request),
        (world.join("b", owned=None), ErrorCode.invalid_request),
        (world.join("b", owned={CLICKS: frozenset({0})}), ErrorCode.invalid_request),
        (world.join("b", rebalance_timeout_ms=-1), ErrorCode.invalid_request),
        (world.join("b", instance_id=""), ErrorCode.invalid_request),
        (world.join("b", assignor="mine"), ErrorCode.unsupported_assignor),
        (world.join("b"), ErrorCode.group_max_size_reached),
        (world.beat("a", -3), ErrorCode.invalid_request),
        (world.beat("a", STATIC_LEAVING_EPOCH), ErrorCode.invalid_request),
        (world.beat("b", 1), ErrorCode.unknown_member_id),
        (world.beat("b", LEAVING_EPOCH), ErrorCode.unknown_member_id),
        (world.beat("a", 1, instance_id="one"), ErrorCode.unknown_member_id),
    ]
    for answer, error in refused:
        assert answer.error is error
        assert answer.message
    assert len(world.log) == size
    stranger = ConsumerHeartbeat(group_id="none", member_id="x", epoch=4)
    answer = world.do(stranger)
    assert isinstance(answer, ConsumerHeartbeatAnswer)
    assert answer.error is ErrorCode.group_id_not_found


def test_the_assignor_that_most_members_ask_for_is_taken() -> None:
    world = World()
    world.join("a", assignor="range")
    assert world.group.describe(world.groups.limits).assignor == "range"
    world.join("b")
    world.join("c", assignor="uniform")
    world.join("d", assignor="uniform")
    assert world.group.describe(world.groups.limits).assignor == "uniform"


def test_an_assignment_is_computed_once_in_the_interval_of_the_group() -> None:
    world = World(consumer_assignment_interval_ms=1_000)
    assert world.join("a").assigned == {CLICKS: frozenset(range(4))}, "the first one at once"
    second = world.join("b")
    assert (second.epoch, second.assigned) == (1, {})
    world.join("c")
    assert (world.group.epoch, world.group.target_epoch) == (3, 1)
    assert world.group.state is ConsumerGroupState.ASSIGNING
    world.wait(500)
    world.restart()
    world.wait(499)
    assert world.beat("a", 1).assigned is None
    world.wait(1)
    assert world.beat("b", 1).epoch == 3, "the interval is over; nothing is free for it yet"
    assert world.group.target_epoch == 3
    asked = world.beat("a", 1)
    assert asked.assigned is not None
    assert len(asked.assigned[CLICKS]) == 2, "for both at once"
    world.beat("a", 1, owned=asked.assigned)
    world.beat("c", 1)
    world.beat("b", 3)
    assert world.group.state is ConsumerGroupState.STABLE


def test_the_clock_of_another_coordinator_does_not_delay_assignments() -> None:
    world = World(consumer_assignment_interval_ms=1_000)
    world.join("a")
    world.now_ms -= 3_600_000
    assert world.join("b").epoch == 2


def test_the_interval_is_that_of_the_group_where_it_has_one() -> None:
    world = World(consumer_assignment_interval_ms=1_000)
    world.join("a")
    plain = world.image
    world.image = plain.with_group_configs({GROUP: {"consumer.assignment.interval.ms": "15000"}})
    world.wait(5_000)
    assert world.join("b").epoch == 1
    world.image = plain.with_group_configs({GROUP: {"consumer.assignment.interval.ms": "0"}})
    assert world.join("c").epoch == 3


def test_a_member_gives_up_what_it_wants_no_more_before_the_next_assignment() -> None:
    world = World(consumer_assignment_interval_ms=1_000)
    world.image = image_of({"clicks": 1, "orders": 1, "others": 1})
    world.join("a", "clicks", "orders")
    rest = {ORDERS: frozenset({0})}
    changed = world.beat("a", 1, topics=frozenset({"orders", "others"}))
    assert (changed.epoch, changed.assigned) == (1, rest)
    assert world.beat("a", 1, owned=rest).epoch == 1
    assert world.group.assignment_of("a").state is MemberState.STABLE
    size = len(world.log)
    assert world.beat("a", 1).assigned is None
    assert len(world.log) == size
    world.wait(1_000)
    answer = world.beat("a", 1)
    assert (answer.epoch, answer.assigned) == (2, {**rest, IDS["others"]: frozenset({0})})
    assert error_of(world, commit("a", 1, topic="orders")) is ErrorCode.none


def commit(
    member_id: str, epoch: int, *partitions: int, topic: str = "clicks", knows_epochs: bool = True
) -> CommitOffsets:
    return CommitOffsets(
        group_id=GROUP,
        generation=epoch,
        member_id=member_id,
        instance_id=None,
        offsets=tuple(
            (topic, one, CommittedOffset(5, -1, "", 1_000_000)) for one in partitions or (0,)
        ),
        knows_epochs=knows_epochs,
    )


def test_a_member_with_an_epoch_commits_in_a_version_that_knows_epochs_others_in_any() -> None:
    world = World()
    world.join("a")
    for member_id, epoch, error in (
        ("a", 1, ErrorCode.unsupported_version),
        ("a", 2, ErrorCode.unsupported_version),
        ("b", 1, ErrorCode.unknown_member_id),
        ("", -1, ErrorCode.unknown_member_id),
    ):
        answer = world.do(commit(member_id, epoch, knows_epochs=False))
        assert isinstance(answer, PartitionsAnswer)
        assert answer.error is error
    world.beat("a", LEAVING_EPOCH)
    answer = world.do(commit("", -1, knows_epochs=False))
    assert isinstance(answer, PartitionsAnswer)
    assert answer.error is ErrorCode.none


def test_members_commit_in_their_epoch_and_others_only_while_nobody_is_in_the_group() -> None:
    world = World()
    world.join("a")
    for member_id, epoch, error in (
        ("a", 1, ErrorCode.none),
        ("a", 2, ErrorCode.stale_member_epoch),
        ("a", 0, ErrorCode.stale_member_epoch),
        ("b", 1, ErrorCode.unknown_member_id),
        ("", -1, ErrorCode.unknown_member_id),
    ):
        answer = world.do(commit(member_id, epoch))
        assert isinstance(answer, PartitionsAnswer)
        assert answer.error is error
    world.beat("a", LEAVING_EPOCH)
    answer = world.do(commit("", -1))
    assert isinstance(answer, PartitionsAnswer)
    assert answer.error is ErrorCode.none


def error_of(world: World, event: GroupEvent) -> ErrorCode:
    answer = world.do(event)
    assert isinstance(answer, PartitionsAnswer)
    return answer.error


def share_clicks() -> World:
    """`a` keeps the first half since epoch 1 and has revoked the rest, which `b` gets in epoch 2;
    both are in epoch 2."""
    world = World()
    world.join("a")
    world.join("b")
    world.beat("a", 1)
    world.beat("a", 1, owned={CLICKS: frozenset({0, 1})})
    world.beat("b", 2)
    return world


STALE = ErrorCode.stale_member_epoch


@pytest.mark.parametrize("restarts", [False, True])
def test_a_member_in_an_older_epoch_commits_in_what_it_has_had_since(restarts: bool) -> None:
    """CGR-5."""
    world = share_clicks()
    if restarts:
        world.restart()
    assert error_of(world, commit("a", 1, 0, 1)) is ErrorCode.none
    assert error_of(world, commit("a", 0, 0)) is STALE
    assert error_of(world, commit("a", 3, 0)) is STALE
    assert error_of(world, commit("a", 1, 2)) is STALE, "another member has it by now"
    assert error_of(world, commit("a", 1, 0, 2)) is STALE
    assert error_of(world, commit("b", 1, 2)) is STALE, "it has it since epoch 2"
    assert error_of(world, commit("a", 1, 9)) is STALE
    world.image = image_of({"orders": 1})
    assert error_of(world, commit("a", 1, 0)) is STALE, "the topic was deleted"


def test_a_partition_that_came_back_to_its_member_is_assigned_in_the_new_epoch() -> None:
    world = share_clicks()
    world.beat("b", LEAVING_EPOCH)
    assert world.beat("a", 2).assigned == {CLICKS: frozenset(range(4))}
    assert error_of(world, commit("a", 1, 0, 1)) is ErrorCode.none
    assert error_of(world, commit("a", 2, 2)) is STALE
    assert error_of(world, commit("a", 3, 2)) is ErrorCode.none


def test_what_a_member_has_to_revoke_it_commits_until_it_has_revoked_it() -> None:
    world = World()
    world.join("a")
    world.image = image_of({"clicks": 4, "orders": 1})
    world.beat("a", 1, topics=frozenset({"clicks", "orders"}))
    world.join("b")
    revoking = world.beat("a", 2)
    assert revoking.epoch == 2
    gone = min(frozenset(range(4)) - revoking.assigned[CLICKS])  # type: ignore[index]
    assert error_of(world, commit("a", 1, gone)) is ErrorCode.none
    world.beat("a", 2, owned=revoking.assigned)
    assert error_of(world, commit("a", 2, gone)) is STALE


def test_a_static_member_that_is_back_commits_in_the_partitions_that_waited_for_it() -> None:
    world = World()
    world.join("a", instance_id="one")
    world.beat("a", STATIC_LEAVING_EPOCH, instance_id="one")
    assert set(world.group.assignment_of("a").assignment_epochs[CLICKS].values()) == {0}
    assert error_of(world, commit("a", 1)) is STALE
    epoch = world.join("c", instance_id="one").epoch
    assert error_of(world, commit("c", epoch)) is ErrorCode.none
    assert error_of(world, commit("a", 1)) is ErrorCode.unknown_member_id


def test_a_transaction_commits_in_an_older_epoch_what_its_member_has_had_since() -> None:
    world = share_clicks()

    def in_transaction(epoch: int, partition: int) -> ErrorCode:
        event = CommitTransactionOffsets(
            group_id=GROUP,
            producer_id=9,
            producer_epoch=0,
            verification=0,
            generation=epoch,
            member_id="a",
            instance_id=None,
            offsets=commit("a", epoch, partition).offsets,
        )
        return error_of(world, event)

    assert in_transaction(1, 0) is ErrorCode.none
    assert in_transaction(1, 2) is ErrorCode.illegal_generation, "clients know no other"


JOIN = Join(
    group_id=GROUP,
    member_id="",
    instance_id=None,
    new_member_id="classic-1",
    client_id="",
    client_host="",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=(GroupProtocol("range", b""),),
    needs_member_id=False,
    can_skip_assignment=False,
)


def test_a_group_without_members_becomes_one_of_the_other_kind_and_keeps_its_offsets() -> None:
    world = World()
    world.join("a")
    world.do(commit("a", 1))
    world.beat("a", LEAVING_EPOCH)
    joined = world.do(JOIN)
    assert isinstance(joined, JoinAnswer)
    assert joined.error is ErrorCode.none
    group = world.groups.find(GROUP)
    assert isinstance(group, ClassicGroup)
    assert group.offsets.find("clicks", 0) is not None
    world.restart()  # the classic member was in no generation yet
    assert world.join("b").error is ErrorCode.none
    assert world.group.offsets.find("clicks", 0) is not None
    world.restart()
    assert world.group.offsets.find("clicks", 0) is not None
    assert list(world.group.subscriptions) == ["b"]


def test_an_empty_group_can_be_deleted_and_one_with_members_cannot() -> None:
    world = World()
    world.join("a")
    world.do(commit("a", 1))
    refused = world.do(DeleteGroup(group_id=GROUP))
    assert refused == CodeAnswer(error=ErrorCode.non_empty_group)
    world.beat("a", LEAVING_EPOCH)
    assert world.do(DeleteGroup(group_id=GROUP)) == CodeAnswer()
    assert world.groups.find(GROUP) is None
    world.restart()
    assert world.groups.find(GROUP) is None


def test_offsets_of_topics_that_are_read_stay_and_others_expire() -> None:
    world = World(offsets_retention_ms=1_000)
    world.join("a")
    world.do(commit("a", 1))
    world.now_ms += 2_000
    world.do(ExpireOffsets(group_id=GROUP))
    assert world.group.offsets
    world.beat("a", LEAVING_EPOCH)
    world.do(ExpireOffsets(group_id=GROUP))
    assert world.groups.find(GROUP) is None


def test_a_member_whose_end_could_not_be_logged_is_still_waited_for() -> None:
    world = World()
    world.join("a")
    world.writes_fail = True
    world.beat("a", LEAVING_EPOCH)
    world.wait(100_000)
    assert list(world.group.subscriptions) == ["a"]
    world.writes_fail = False
    world.wait(45_000)
    assert not world.group.subscriptions


# Anything in any order


class Reader:
    """A client's side of the protocol."""

    def __init__(self, world: World, member_id: str, instance_id: str | None) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = JOINING_EPOCH
        self.owned: AssignedPartitions = NO_PARTITIONS
        self.assigned: AssignedPartitions = NO_PARTITIONS  # owned, once what is not in it is gone
        self.must_say_all = True

    def beat(self, *, hears: bool) -> None:
        values: dict[str, object] = {"instance_id": self.instance_id}
        if self.must_say_all:
            values["topics"] = frozenset({"clicks", "orders"})
            values["rebalance_timeout_ms"] = 60_000
        # Who is about to take partitions says nothing of what it owns: without those it would say
        # that it has given them up. In Kafka's protocol the coordinator has to believe that.
        is_taking = common(self.assigned, self.owned) != self.assigned
        values["owned"] = None if is_taking else self.owned
        answer = self.world.beat(self.member_id, self.epoch, **values)
        self.must_say_all = not hears
        if not hears:
            return
        match answer.error:
            case ErrorCode.none:
                self.epoch = answer.epoch
                if answer.assigned is not None:
                    self.assigned = answer.assigned
            case ErrorCode.coordinator_not_available:
                self.must_say_all = True
            case ErrorCode.unreleased_instance_id:
                pass
            case _:
                self.start_over()

    def reconcile(self) -> None:
        """First give up, then take: the next heartbeat says so."""
        kept = common(self.owned, self.assigned)
        self.owned = self.assigned if kept == self.owned else kept

    def start_over(self) -> None:
        self.epoch, self.must_say_all = JOINING_EPOCH, True
        self.owned = self.assigned = NO_PARTITIONS


STEPS = (
    *("start", "beat", "live", "live", "beat_unheard", "reconcile", "leave", "crash", "pause"),
    *("grow", "shrink", "restart", "fail_writes", "allow_writes"),
)
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3)), max_size=60)


class Crowd:
    """Readers of one group; the last one is a static member."""

    def __init__(self, interval_ms: int) -> None:
        self.world = World(consumer_assignment_interval_ms=interval_ms)
        self.readers: dict[int, Reader] = {}
        self._made = 0

    def do(self, what: str, number: int) -> None:
        world, reader = self.world, self.readers.get(number)
        match what:
            case "grow" | "shrink":
                count = 6 if what == "grow" else 3
                world.image = image_of({"clicks": count, "orders": number + 1})
            case "restart":
                world.restart()
            case "fail_writes" | "allow_writes":
                world.writes_fail = what == "fail_writes"
            case "pause":
                world.wait(20_000)
            case "start" if reader is None:
                self._made += 1
                instance_id = "static" if number == 3 else None
                self.readers[number] = Reader(world, f"r{self._made}", instance_id)
            case _ if reader is None:
                pass
            case "beat" | "beat_unheard":
                reader.beat(hears=what == "beat")
            case "live":
                reader.beat(hears=True)
                reader.reconcile()
            case "reconcile":
                reader.reconcile()
            case "leave":
                epoch = LEAVING_EPOCH if reader.instance_id is None else STATIC_LEAVING_EPOCH
                if reader.epoch != JOINING_EPOCH:
                    world.beat(reader.member_id, epoch, instance_id=reader.instance_id)
                del self.readers[number]
            case "crash":
                del self.readers[number]

    def check(self) -> None:
        """What members own who are still members is nobody else's."""
        group = self.world.groups.find(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        members = [one for one in self.readers.values() if one.member_id in group.subscriptions]
        for place, one in enumerate(members):
            for other in members[place + 1 :]:
                assert not overlap(one.owned, other.owned), "CGR-1: two readers of one partition"

    def come_to_rest(self) -> None:
        self.world.writes_fail = False
        for _ in range(12):
            self.world.wait(5_000)
            for reader in self.readers.values():
                reader.beat(hears=True)
                reader.reconcile()
                self.check()


@settings(max_examples=400, deadline=None)
@given(steps, st.sampled_from((0, 1_000, 15_000)))
def test_no_partition_has_two_readers_and_in_the_end_each_has_one(
    steps: Sequence[tuple[str, int]], interval_ms: int
) -> None:
    crowd = Crowd(interval_ms)
    for what, number in steps:
        crowd.do(what, number)
        crowd.check()
    crowd.come_to_rest()
    if crowd.readers:
        world = crowd.world
        assert world.group.state is ConsumerGroupState.STABLE
        everything = [
            (topic, one)
            for reader in crowd.readers.values()
            for topic, some in reader.owned.items()
            for one in some
        ]
        wanted = [
            (state.topic_id, number)
            for name, state in world.image.topics.items()
            if name in ("clicks", "orders")
            for number in range(len(state.partitions))
        ]
        assert sorted(everything) == sorted(wanted)
