"""Faults in streams groups (KIP-1071)."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_MACHINE = "unit/coordinators/groups/test_streams_groups_machine.py"

MUTANTS = (
    Mutant(
        name="a-task-is-given-away-before-it-is-free",
        rule="STG-1",
        breaks="two members run one task",
        edits=(
            Edit(
                "moldau.coordinators.groups.rules.streams_membership",
                "_free_tasks",
                "is_free(kind, (one, number))",
            ),
        ),
        seeds=Seeds(count=8, streams=True, by=("STG-1",)),
        tests=(
            f"{_MACHINE}::test_members_share_the_tasks_and_nobody_runs_one_twice",
            f"{_MACHINE}::test_whatever_happens_a_group_comes_to_rest",
        ),
        is_sample=True,
    ),
    Mutant(
        name="streams-members-that-have-gone-stay-with-the-next-coordinator",
        rule="STG-5",
        breaks="a member that crashes beside its coordinator keeps its tasks, and nobody runs them",
        edits=(
            Edit(
                "moldau.coordinators.groups.rules.streams_membership",
                "await_signs_of_life",
                "outcome.arm(group.session_timer(member_id), limits.streams_session_timeout_ms)",
                "outcome.disarm(group.session_timer(member_id))",
            ),
        ),
        seeds=Seeds(count=4, first=5, streams=True, by=("STG-5",)),
    ),
)
