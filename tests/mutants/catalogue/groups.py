"""Groups: when a commit is acknowledged, what a position may show, and when it goes."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_SHARD = "moldau.coordinators.groups.shard"
_GROUP_COORDINATOR = "moldau.coordinators.groups.coordinator"
_OFFSET_VIEWS = "moldau.coordinators.groups.rules.commits"
_STATE_SHARD = "moldau.coordinators.runtime.shard"
_LEADS = "moldau.coordinators.runtime.runtime"
_STATE_LOG = "moldau.coordinators.runtime.log"
_UNIT = "unit/coordinators/groups"
_STORIES = "scenarios/test_group_stories.py"

MUTANTS = (
    Mutant(
        name="a-commit-is-accepted-before-the-assignment-is-there",
        rule="Kafka's ClassicGroup",
        breaks="a member commits in a generation whose assignment it cannot know yet, over the "
        "positions of whoever reads its partitions next",
        edits=(
            Edit(
                "moldau.coordinators.groups.rules.commits",
                "_find_commit_fault",
                "ClassicGroupState.COMPLETING_REBALANCE",
                "ClassicGroupState.DEAD",
            ),
        ),
        tests=(
            f"{_STORIES}::test_the_story_comes_out_as_it_is_written[11_commits]",
            f"{_UNIT}/test_groups_machine.py"
            "::test_a_member_commits_in_no_generation_whose_assignment_is_still_awaited",
        ),
    ),
    Mutant(
        name="an-offset-belongs-to-a-name",
        rule="GRP-10",
        breaks="a coordinator that takes over serves the offsets of a deleted topic for the next",
        edits=(
            Edit(_OFFSET_VIEWS, "_current", "is_current(topic, committed, image)"),
            Edit(
                _GROUP_COORDINATOR,
                "GroupCoordinator._make_shard",
                "on_loaded=self._forget_deleted_topics",
            ),
        ),
        tests=(
            "unit/broker/test_replicated_groups.py::"
            "test_a_coordinator_that_takes_over_deletes_the_positions_of_the_deleted_topic",
        ),
    ),
    Mutant(
        name="a-commit-is-acknowledged-early",
        rule="GRP-8",
        breaks="an offset commit is answered before its record is committed",
        edits=(
            Edit(
                _SHARD,
                "GroupShard._perform",
                "self.is_closed or self._deferred.is_committed",
                "True",
            ),
        ),
        seeds=Seeds(
            count=10, story="a_coordinator_is_replaced_before_others_have_a_commit", brokers=3
        ),
        tests=(f"{_UNIT}/test_shard.py::test_a_commit_is_answered_when_the_replicas_have_it",),
    ),
    Mutant(
        name="a-commit-that-too-few-have-is-a-success",
        rule="GRP-8",
        breaks="`min.insync.replicas` is not asked when a commit is answered",
        edits=(
            Edit(_STATE_SHARD, "CoordinatorShard._find_fault", "self._log.is_safe", "self._log"),
        ),
        tests=(f"{_UNIT}/test_shard.py::test_a_commit_that_too_few_replicas_have_is_no_success",),
    ),
    Mutant(
        name="a-coordinator-loads-damaged-records",
        rule="GRP-9",
        breaks="the CRC is not checked when a coordinator loads its state",
        edits=(Edit(_STATE_LOG, "_read", "find_damaged_batch(data, offset)", "None"),),
        tests=(
            "unit/coordinators/runtime/test_coordinator_log.py::"
            "test_a_flipped_bit_is_not_loaded_and_the_partition_is_reported_as_damaged",
            "unit/broker/test_replicated_groups.py::"
            "test_a_coordinator_that_loads_a_flipped_bit_resigns_and_the_position_stays_as_committed",
        ),
    ),
    Mutant(
        name="a-load-without-a-file-handle-is-not-tried-again",
        rule="loading of coordinators",
        breaks="a coordinator that had no file handle while it was loading stays in that state",
        edits=(Edit(_LEADS, "CoordinatorRuntime._load", "shard.is_closed", "True"),),
        tests=(
            "unit/coordinators/runtime/test_coordinator_runtime.py::test_a_load_without_a_file_handle_is_tried_again",
        ),
    ),
    Mutant(
        name="a-shard-that-was-written-in-part-goes-on",
        rule="GRP-8",
        breaks="an append that failed half-way counts as nothing having happened",
        edits=(
            Edit(
                _STATE_SHARD,
                "CoordinatorShard._append",
                "self._log.end_offset != former_end",
                "former_end > 1 << 60",
            ),
        ),
        tests=(
            f"{_UNIT}/test_shard.py::"
            "test_a_shard_that_was_written_in_part_is_closed_since_only_its_log_can_tell",
        ),
    ),
    Mutant(
        name="a-position-that-may-be-lost-is-shown",
        rule="GRP-8",
        breaks="OffsetFetch answers with a position that is not committed",
        edits=(
            Edit(
                _STATE_SHARD,
                "CoordinatorShard.read_state",
                "self._deferred.is_committed",
                "self._log.end_offset >= 0",
            ),
        ),
        seeds=Seeds(
            count=10, story="a_coordinator_is_replaced_before_others_have_a_commit", brokers=3
        ),
        tests=(f"{_UNIT}/test_shard.py::test_nothing_overtakes_what_is_not_committed_yet",),
    ),
    Mutant(
        name="a-new-coordinator-knows-nothing",
        rule="GRP-8",
        breaks="a coordinator answers without having read its log",
        edits=(
            Edit(
                _LEADS,
                "CoordinatorRuntime._start_shard",
                "partition.log.log_start_offset == partition.log.log_end_offset",
                "partition.log.log_start_offset <= partition.log.log_end_offset",
            ),
        ),
        seeds=Seeds(kinds=("CRASH", "STOP", "EXPIRE"), by=("GRP",)),
    ),
    Mutant(
        name="coordinate-without-a-session",
        rule="REP-4",
        breaks="a coordinator answers after the end of its lease",
        edits=(
            Edit(
                _LEADS,
                "CoordinatorRuntime.require_shard",
                "not context.partition.holds_lease",
                "context.partition is None",
            ),
        ),
        tests=(
            "unit/broker/test_replicated_groups.py::"
            "test_a_coordinator_whose_lease_is_over_says_nothing",
        ),
    ),
    Mutant(
        name="coordinate-before-the-log-is-committed",
        rule="GRP-8",
        breaks="a new coordinator shows positions that its followers may not have",
        edits=(
            Edit(
                _LEADS,
                "CoordinatorRuntime.on_partition_changed",
                "partition.state.is_settled",
                "partition.is_leader",
            ),
        ),
        tests=(
            "unit/broker/test_replicated_groups.py::"
            "test_a_new_coordinator_shows_nothing_before_all_it_has_is_committed",
        ),
    ),
    Mutant(
        name="a-former-generation-commits",
        rule="GRP-6",
        breaks="a member of a former generation changes positions",
        edits=(
            Edit(
                "moldau.coordinators.groups.rules.commits",
                "_find_commit_fault",
                "event.generation != group.generation",
                "event.generation > group.generation",
            ),
        ),
        seeds=Seeds(by=("GRP-6", "GRP-8")),
        tests=(f"{_STORIES}",),
    ),
    Mutant(
        name="two-own-a-partition",
        rule="GRP-6",
        breaks="a member that asks late is given what another one owns",
        edits=(
            Edit(
                "moldau.coordinators.groups.rules.classic_membership",
                "sync",
                "member.assignment",
                "next(iter(group.members)).assignment",
            ),
        ),
        seeds=Seeds(by=("GRP-6",)),
    ),
    Mutant(
        name="positions-of-a-group-at-work-expire",
        rule="KIP-211",
        breaks="positions of topics that a group reads expire",
        edits=(
            Edit(
                "moldau.coordinators.groups.rules.commits",
                "find_expired",
                "not group.is_subscribed_to(topic)",
            ),
        ),
        tests=(f"{_STORIES}",),
    ),
    Mutant(
        name="positions-expire-from-their-commit-on",
        rule="KIP-211",
        breaks="positions of a group that has just lost its members count as old",
        edits=(
            Edit(
                "moldau.coordinators.groups.rules.commits",
                "_age_rule",
                "_since_commit if since_ms == NO_TIMESTAMP else lambda _: since_ms",
                "_since_commit",
            ),
        ),
        tests=(f"{_STORIES}",),
    ),
    Mutant(
        name="a-commit-has-the-time-of-its-coordinator",
        rule="GRP-10",
        breaks="a commit in a new topic is deleted where the coordinator's clock is behind",
        edits=(
            Edit(
                "moldau.broker.offset_rows",
                "OffsetRows.__init__",
                "context.services.publisher.store_now_ms",
                "context.services.clock.now_ms",
            ),
        ),
        tests=(
            "unit/broker/test_replicated_groups.py::"
            "test_a_commit_in_a_recreated_topic_outlives_a_coordinator_that_never_learns_of_it",
            "unit/broker/test_replicated_groups.py::"
            "test_a_coordinator_that_takes_over_deletes_the_positions_of_the_deleted_topic",
        ),
    ),
    Mutant(
        name="a-disk-that-fails-under-a-coordinator-stays-in-service",
        rule="loading of coordinators",
        breaks="a disk that cannot be read ends the broker, after its load was tried again",
        edits=(Edit("moldau.coordinators.runtime.log", "CoordinatorLog.load", "OSError", "()"),),
        tests=(
            "unit/coordinators/runtime/test_coordinator_log.py::"
            "test_a_disk_that_cannot_be_read_goes_offline_and_the_load_says_so",
        ),
    ),
)
