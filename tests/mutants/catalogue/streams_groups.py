"""Faults in streams groups (KIP-1071)."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_RECONCILIATION = "moldau.groups.rules.streams_reconciliation"
_GROUP = "moldau.groups.rules.streams_group"
_MEMBERSHIP = "moldau.groups.rules.streams_membership"
_TARGETS = "moldau.groups.rules.streams_targets"
_COMMITS = "moldau.groups.rules.streams_commits"
_ASSIGNOR = "moldau.groups.rules.streams_assignor"
_MACHINE = "unit/groups/test_streams_groups_machine.py"
_ASSIGNORS = "unit/groups/test_streams_assignor.py"

MUTANTS = (
    Mutant(
        name="a-task-is-given-away-before-it-is-free",
        rule="STG-1",
        breaks="two members run one task",
        edits=(Edit(_RECONCILIATION, " if is_free(kind, (one, number))", ""),),
        seeds=Seeds(count=8, streams=True, by=("STG-1",)),
        tests=(
            f"{_MACHINE}::test_members_share_the_tasks_and_nobody_runs_one_twice",
            f"{_MACHINE}::test_whatever_happens_a_group_comes_to_rest",
        ),
        is_sample=True,
    ),
    Mutant(
        name="a-streams-member-that-has-gone-gets-tasks",
        rule="STG-3",
        breaks="tasks that were assigned while a member left are kept for it, and nobody runs them",
        edits=(Edit(_TARGETS, " if one in group.members}", "}"),),
        tests=(
            f"{_MACHINE}::test_one_that_has_gone_while_tasks_were_assigned_gets_none",
            f"{_MACHINE}::test_whatever_happens_a_group_comes_to_rest",
        ),
    ),
    Mutant(
        name="tasks-of-a-deleted-streams-group-are-those-of-the-next-one",
        rule="STG-2",
        breaks="a group that is made anew counts as assigned, and its members have no tasks",
        edits=(Edit(_TARGETS, "if not group.is_assigning:", "if False:"),),
        tests=(
            f"{_MACHINE}::test_tasks_that_were_assigned_for_a_group_of_the_same_id_are_nobodys",
        ),
    ),
    Mutant(
        name="streams-members-that-have-gone-stay-with-the-next-coordinator",
        rule="STG-5",
        breaks="a member that crashes beside its coordinator keeps its tasks, and nobody runs them",
        edits=(
            Edit(
                _MEMBERSHIP,
                "        outcome.arm(group.session_timer(member_id), "
                "limits.streams_session_timeout_ms)\n",
                "        outcome.disarm(group.session_timer(member_id))\n",
            ),
        ),
        seeds=Seeds(count=4, first=5, streams=True, by=("STG-5",)),
    ),
    Mutant(
        name="threads-of-a-process-open-the-state-of-a-task-beside-each-other",
        rule="STG-1",
        breaks="a copy of a state becomes the task of another thread before it is closed",
        edits=(
            Edit(
                _GROUP,
                "if other is not None and process_of(other) == process_of(member):",
                "if other is None:",
            ),
        ),
        tests=(
            f"{_MACHINE}::"
            "test_a_task_waits_for_another_thread_of_its_process_and_for_whoever_runs_it",
        ),
    ),
    Mutant(
        name="an-old-epoch-of-a-streams-member-is-taken",
        rule="STG-2",
        breaks="a member that was fenced goes on",
        edits=(Edit(_MEMBERSHIP, "    if not is_late:", "    if is_late is None:"),),
        tests=(f"{_MACHINE}::test_a_member_in_another_epoch_is_fenced",),
    ),
    Mutant(
        name="a-late-member-commits-what-others-ran",
        rule="STG-4",
        breaks="a member commits in an epoch in which it had no such task",
        edits=(Edit(_COMMITS, "if since is None or epoch < since:", "if since is None:"),),
        tests=(
            f"{_MACHINE}::test_a_member_that_has_not_heard_of_its_epoch_commits_what_it_has_since",
        ),
    ),
    Mutant(
        name="a-copy-of-a-state-is-kept-beside-its-task",
        rule="STG-5",
        breaks="a process that is lost takes the task and its copy",
        edits=(
            Edit(
                _ASSIGNOR,
                "return self._workers[place].process_id not in self._processes[task]",
                "return True",
            ),
        ),
        tests=(f"{_ASSIGNORS}::test_tasks_are_run_once_with_copies_elsewhere",),
    ),
)
