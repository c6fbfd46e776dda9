"""Consumer groups (KIP-848): who may have a partition, who is fenced, and what survives."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_RECONCILIATION = "moldau.coordinators.groups.rules.consumer_membership"
_EPOCHS = "moldau.coordinators.groups.rules.epoch_group"
_MACHINE = "unit/coordinators/groups/test_consumer_groups_machine.py"
_STORY = (
    "scenarios/test_group_stories.py::test_the_story_comes_out_as_it_is_written"
    "[37_a_consumer_group_commits_and_waits_for_its_interval]"
)

MUTANTS = (
    Mutant(
        name="a-partition-that-is-kept-counts-as-new",
        rule="CGR-5",
        breaks="commits that cross a new epoch on their way are refused",
        edits=(
            Edit(
                _RECONCILIATION,
                "_epochs_of",
                "known.get(one, epoch) if one in had else epoch",
                "epoch",
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
        edits=(Edit(_EPOCHS, "was_assigned_just_now", "assigned_ms != 0", "assigned_ms == -1"),),
        tests=(
            f"{_MACHINE}::test_an_assignment_is_computed_once_in_the_interval_of_the_group",
            _STORY,
            "unit/coordinators/groups/test_share_groups_machine.py"
            "::test_partitions_are_assigned_once_in_the_interval_of_the_group",
            "unit/coordinators/groups/test_streams_groups_machine.py::test_assignments_are_not_made_too_often",
        ),
    ),
)
