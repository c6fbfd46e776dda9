"""Share groups (KIP-932): what members are given, and what share coordinators keep."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_SHARD = "moldau.coordinators.shares.coordinator"
_COORDINATION = "unit/broker/test_share_coordination.py"
_BEGINNINGS = "moldau.coordinators.groups.rules.share_group"

MUTANTS = (
    Mutant(
        name="states-of-topics-that-were-deleted-unseen-stay",
        rule="no state is left without a topic",
        breaks="share coordinators keep, for ever, states of topics that nobody has any more",
        edits=(
            Edit(
                _SHARD,
                "ShareCoordinatorShard.forget_deleted",
                "self.report(DeleteState(key))",
                "pass",
            ),
        ),
        tests=(
            f"{_COORDINATION}::"
            "test_states_of_topics_that_were_deleted_while_nobody_had_them_loaded_are_forgotten",
        ),
    ),
    Mutant(
        name="a-state-whose-topic-is-missing-is-deleted",
        rule="DEL-1",
        breaks="a coordinator deletes the states of a topic that its image does not have",
        edits=(
            Edit(
                _SHARD,
                "ShareCoordinatorShard.forget_deleted",
                "self._was_deleted(key)",
                "not self._has_partition(key)",
            ),
        ),
        tests=(
            f"{_COORDINATION}::"
            "test_the_states_of_a_topic_that_is_only_missing_from_the_metadata_are_kept",
        ),
        seeds=Seeds(
            count=25,
            kinds=("PAUSE", "CUT", "EXPIRE", "CRASH"),
            operations=("absences",),
            transactions=True,
            shares=True,
            by=(
                "SHR-2",
                "SHR-3",
                "SHR-8",
                "SHR-9",
                "SHS-5",
            ),
        ),
    ),
    Mutant(
        name="a-share-group-forgets-a-missing-topic",
        rule="DEL-1",
        breaks="a share group starts again in a topic that was missing while another was deleted",
        edits=(
            Edit(
                "moldau.coordinators.groups.rules.share_group",
                "forget_topics",
                "image.was_deleted(None, topic_id)",
                "topic_id not in image.topics_by_id",
            ),
        ),
        tests=(
            "unit/coordinators/groups/test_share_groups_machine.py::"
            "test_a_topic_that_is_missing_when_another_one_is_deleted_is_not_forgotten",
        ),
        seeds=Seeds(
            count=25,
            kinds=("PAUSE", "CUT", "EXPIRE", "CRASH"),
            operations=("absences", "topics"),
            transactions=True,
            shares=True,
            by=(
                "SHR-2",
                "SHR-3",
                "SHR-8",
                "SHR-9",
                "SHS-5",
            ),
        ),
    ),
    Mutant(
        name="share-states-are-pruned-before-their-snapshot-is-committed",
        rule="SHS-3",
        breaks="a failover loses a snapshot, and what it made superfluous was deleted",
        edits=(
            Edit(
                _SHARD,
                "ShareCoordinatorShard.prune",
                "self._log.end_offset > self._log.committed_offset",
                "False",
            ),
        ),
        tests=(
            "unit/coordinators/shares/test_share_state_shard.py"
            "::test_the_log_is_not_pruned_before_the_snapshot_is_committed",
        ),
    ),
)
