"""Consumer groups (KIP-848): who may have a partition, who is fenced, and what survives."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_RECONCILIATION = "moldau.groups.rules.reconciliation"
_MEMBERSHIP = "moldau.groups.rules.consumer_membership"
_GROUP = "moldau.groups.rules.consumer_group"
_CHANGE = "moldau.groups.rules.protocol_change"
_CLASSIC = "moldau.groups.rules.classic_consumers"
_COMMITS = "moldau.groups.rules.commits"
_EPOCHS = "moldau.groups.rules.epoch_group"
_MACHINE = "unit/groups/test_consumer_groups_machine.py"
_MIXED = "unit/groups/test_protocol_change.py"
_STORY = (
    "scenarios/test_group_stories.py::test_the_story_comes_out_as_it_is_written"
    "[37_a_consumer_group_commits_and_waits_for_its_interval]"
)

MUTANTS = (
    Mutant(
        name="an-expression-gives-topics-that-its-member-may-not-know-of",
        rule="KIP-848",
        breaks="whoever may read a group learns of all topics, and is given partitions of them",
        edits=(
            Edit(
                "moldau.groups.rules.topic_regex",
                "matching if may_see is None else frozenset(filter(may_see, matching))",
                "matching",
            ),
        ),
        tests=(
            f"{_MACHINE}::test_an_expression_stands_for_the_topics_that_its_member_may_know_of",
            "unit/broker/handlers/test_authorization_handlers.py"
            "::test_an_expression_gives_a_consumer_topics_that_it_may_describe",
        ),
    ),
    Mutant(
        name="an-expression-is-not-looked-up-in-topics-that-the-group-has-seen",
        rule="KIP-848",
        breaks="a topic that was made before a member left is not found before the next one is",
        edits=(
            Edit(
                _MEMBERSHIP,
                "if group.resolved is None or group.resolved[0] is not turn.image.topics:",
                "if group.resolved is None:",
            ),
        ),
        tests=(
            f"{_MACHINE}::test_an_expression_has_a_topic_that_was_made_before_somebody_left",
            f"{_MIXED}::test_an_expression_has_a_new_topic_that_a_classic_member_does_not_read",
        ),
    ),
    Mutant(
        name="a-partition-is-given-away-before-it-is-free",
        rule="CGR-1",
        breaks="a member gets what another one still has",
        edits=(Edit(_RECONCILIATION, "if is_free(topic_id, one) or", "if True or"),),
        tests=(
            f"{_MACHINE}::test_no_partition_has_two_readers_and_in_the_end_each_has_one",
            f"{_MACHINE}::"
            "test_the_first_member_gets_everything_and_a_second_one_what_the_first_gives_up",
        ),
        is_sample=True,
    ),
    Mutant(
        name="who-must-give-up-partitions-goes-on-at-once",
        rule="CGR-1",
        breaks="a member reaches the next epoch while it still owns what others are to get",
        edits=(
            Edit(_RECONCILIATION, "if leaving and _owns(leaving, owned):", "if leaving is None:"),
        ),
        tests=(
            f"{_MACHINE}::"
            "test_the_first_member_gets_everything_and_a_second_one_what_the_first_gives_up",
        ),
    ),
    Mutant(
        name="who-is-giving-up-partitions-is-not-asked-whether-it-has",
        rule="CGR-1",
        breaks="the second heartbeat of a member that has to revoke counts as its word",
        edits=(
            Edit(
                _RECONCILIATION,
                "if _owns(current.revoking, owned):",
                "if not current.revoking:",
            ),
        ),
        tests=(
            f"{_MACHINE}::"
            "test_the_first_member_gets_everything_and_a_second_one_what_the_first_gives_up",
        ),
    ),
    Mutant(
        name="partitions-that-are-being-given-up-count-as-free",
        rule="CGR-1",
        breaks="what a member has still to revoke is in nobody's hands",
        edits=(
            Edit(
                _GROUP,
                "for partitions in (assignment.assigned, assignment.revoking):",
                "for partitions in (assignment.assigned,):",
            ),
        ),
        tests=(f"{_MACHINE}::test_no_partition_has_two_readers_and_in_the_end_each_has_one",),
    ),
    Mutant(
        name="an-old-epoch-of-a-member-is-taken",
        rule="CGR-2",
        breaks="a member that was fenced goes on",
        edits=(Edit(_MEMBERSHIP, "    if not is_late:", "    if is_late is None:"),),
        tests=(
            f"{_MACHINE}::test_an_epoch_that_is_not_the_members_is_fenced_except_the_one_before",
        ),
    ),
    Mutant(
        name="a-late-member-commits-in-partitions-of-others",
        rule="CGR-5",
        breaks="a member that has not heard of its epoch overwrites positions of the next owner",
        edits=(
            Edit(
                _COMMITS,
                "        (state := image.topics.get(topic)) is not None\n        and",
                "True or",
            ),
        ),
        tests=(f"{_MACHINE}::test_a_member_in_an_older_epoch_commits_in_what_it_has_had_since",),
    ),
    Mutant(
        name="a-member-commits-what-it-had-before-others-read-it",
        rule="CGR-5",
        breaks="a partition that comes back to its member counts as never gone",
        edits=(
            Edit(
                "moldau.groups.rules.consumer_group_records",
                "assigned_in is not None and assigned_in <= epoch",
                "assigned_in is not None",
            ),
        ),
        tests=(
            f"{_MACHINE}::"
            "test_a_partition_that_came_back_to_its_member_is_assigned_in_the_new_epoch",
        ),
    ),
    Mutant(
        name="a-partition-that-is-kept-counts-as-new",
        rule="CGR-5",
        breaks="commits that cross a new epoch on their way are refused",
        edits=(
            Edit(
                _RECONCILIATION,
                "(one, known.get(one, epoch) if one in had else epoch) for one in some",
                "(one, epoch) for one in some",
            ),
        ),
        tests=(
            f"{_MACHINE}::test_a_member_in_an_older_epoch_commits_in_what_it_has_had_since",
            _STORY,
        ),
    ),
    Mutant(
        name="an-assignment-does-not-wait-for-its-interval",
        rule="KIP-1263",
        breaks="a large group whose members come one by one is assigned with each of them",
        edits=(Edit(_EPOCHS, "return assigned_ms != 0 and", "return assigned_ms == -1 and"),),
        tests=(
            f"{_MACHINE}::test_an_assignment_is_computed_once_in_the_interval_of_the_group",
            _STORY,
            "unit/groups/test_share_groups_machine.py"
            "::test_partitions_are_assigned_once_in_the_interval_of_the_group",
            "unit/groups/test_streams_groups_machine.py::test_assignments_are_not_made_too_often",
        ),
    ),
    Mutant(
        name="a-member-keeps-what-it-wants-no-more-until-the-next-assignment",
        rule="KIP-1263",
        breaks="a member is assigned partitions of a topic that it has unsubscribed from",
        edits=(Edit(_RECONCILIATION, " and is_within(current.assigned, target):", ":"),),
        tests=(
            f"{_MACHINE}::test_a_member_gives_up_what_it_wants_no_more_before_the_next_assignment",
        ),
    ),
    Mutant(
        name="classic-members-join-again-while-the-assignment-is-delayed",
        rule="KIP-1263",
        breaks="members of the classic protocol join and sync in a loop until the interval is over",
        edits=(
            Edit(
                _CLASSIC,
                "group.may_assign(turn.now_ms, interval_ms)",
                "group.epoch > group.target_epoch",
            ),
        ),
        tests=(
            f"{_MIXED}::test_classic_members_join_again_when_the_next_assignment_may_be_computed",
        ),
    ),
    Mutant(
        name="a-static-member-is-replaced-before-it-has-left",
        rule="CGR-1",
        breaks="two processes with one instance id take turns",
        edits=(
            Edit(
                _MEMBERSHIP,
                "group.assignment_of(known).epoch != STATIC_LEAVING_EPOCH:",
                "group.assignment_of(known).epoch == JOINING_EPOCH - 9:",
            ),
        ),
        tests=(
            f"{_MACHINE}::test_a_static_member_comes_back_under_another_id_and_has_what_it_had",
        ),
    ),
    Mutant(
        name="a-member-that-could-not-be-logged-off-is-forgotten-by-its-timer",
        rule="CGR-4",
        breaks="a member whose removal was not logged stays for ever",
        edits=(
            Edit(
                "moldau.groups.rules.consumer_group_events",
                "consumer_membership.await_signs_of_life(group, turn.limits, turn.outcome)",
                "pass",
            ),
        ),
        tests=(f"{_MACHINE}::test_a_member_whose_end_could_not_be_logged_is_still_waited_for",),
    ),
    Mutant(
        name="a-downgrade-forgets-who-left",
        rule="CGR-4",
        breaks="the partitions of the member whose leaving made the group classic stay unread when "
        "the coordinator fails at that moment",
        edits=(
            Edit(
                _CHANGE,
                "            for one in group.subscriptions.values()\n        ),\n    )\n"
                "    outcome.records.append(GroupRecord(group_id, metadata))",
                "            for one in staying\n        ),\n    )\n"
                "    outcome.records.append(GroupRecord(group_id, metadata))",
            ),
        ),
        tests=(
            f"{_MIXED}::test_a_coordinator_that_takes_over_in_the_middle_of_a_downgrade_ends_it",
        ),
    ),
    Mutant(
        name="classic-members-are-not-told-to-join-again",
        rule="CGR-4",
        breaks="a member of the classic protocol never hears that there is a step to take",
        edits=(
            Edit(
                _CLASSIC,
                "if _is_behind(group, current, turn) or current.state is "
                "MemberState.UNREVOKED_PARTITIONS:",
                "if current.epoch > group.epoch:",
            ),
        ),
        tests=(f"{_MIXED}::test_a_member_of_the_new_protocol_joins_a_classic_group_which_goes_on",),
    ),
)
