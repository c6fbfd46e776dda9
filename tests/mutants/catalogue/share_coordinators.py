"""Share groups (KIP-932): what members are given, and what share coordinators keep."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_STATES = "moldau.shares.rules.state_machine"
_BATCHES = "moldau.shares.rules.state_batches"
_ASSIGNOR = "moldau.groups.rules.share_assignor"
_EVENTS = "moldau.groups.rules.share_group_events"
_SHARD = "moldau.shares.share_state_shard"
_COORDINATION = "unit/broker/test_share_coordination.py"
_BEGINNINGS = "moldau.groups.rules.share_states"
_GROUPS = "moldau.groups.rules.groups"
_STATE_TESTS = "unit/shares/rules/test_state_machine.py"
_BATCH_TESTS = "unit/shares/rules/test_state_batches.py"
_GROUP_TESTS = "unit/groups/test_share_groups_machine.py"
_ASSIGNOR_TESTS = "unit/groups/test_share_assignor.py"

MUTANTS = (
    Mutant(
        name="states-of-topics-that-were-deleted-unseen-stay",
        rule="no state is left without a topic",
        breaks="share coordinators keep, for ever, states of topics that nobody has any more",
        edits=(Edit(_SHARD, "self.report(DeleteState(key))", "pass"),),
        tests=(
            f"{_COORDINATION}::"
            "test_states_of_topics_that_were_deleted_while_nobody_had_them_loaded_are_forgotten",
        ),
    ),
    Mutant(
        name="a-state-whose-topic-is-missing-is-deleted",
        rule="DEL-1",
        breaks="a coordinator deletes the states of a topic that its image does not have",
        edits=(Edit(_SHARD, "if self._was_deleted(key))", "if not self._has_partition(key))"),),
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
                _BEGINNINGS,
                "if image.was_deleted(None, topic_id)",
                "if topic_id not in image.topics_by_id",
            ),
        ),
        tests=(
            "unit/groups/test_share_groups_machine.py::"
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
        name="the-rest-of-a-topic-begins-at-the-beginning",
        rule="SHG-5",
        breaks="partitions whose state could not be begun at first are read from offset 0",
        edits=(
            Edit(
                _BEGINNINGS,
                "    if begun is not None and partition in begun.partitions:\n"
                "        return begun.starts.get(partition, UNKNOWN_START)\n",
                "",
            ),
            Edit(
                _BEGINNINGS,
                "return FIRST_START if known and partition > max(known) else UNKNOWN_START",
                "return FIRST_START if topic_id in states.initialized else UNKNOWN_START",
            ),
        ),
        tests=(
            f"{_GROUP_TESTS}::"
            "test_a_first_initialization_that_fails_in_part_is_finished_where_it_was_to_begin",
        ),
    ),
    Mutant(
        name="where-a-state-begins-is-forgotten",
        rule="SHG-5",
        breaks="a partition that came later is begun at its end, and what was in it is missed",
        edits=(
            Edit(
                _BEGINNINGS,
                "        return begun.starts.get(partition, UNKNOWN_START)",
                "        return UNKNOWN_START",
            ),
        ),
        tests=(_GROUP_TESTS,),
    ),
    Mutant(
        name="a-state-is-given-up-before-it-is-altered",
        rule="SHG-5",
        breaks="a group begins anew after its offsets could not be altered",
        edits=(
            Edit(
                _BEGINNINGS,
                "    value = StateTopics(initializing, states.initialized, deleting)\n",
                "    value = StateTopics(initializing, {}, deleting)\n",
            ),
            Edit(
                _BEGINNINGS,
                "    _begin(group, new, event.names, turn)",
                "    _begin(group, list(event.states), event.names, turn)",
            ),
        ),
        tests=(f"{_GROUP_TESTS}::test_offsets_that_could_not_be_altered_are_as_before",),
    ),
    Mutant(
        name="a-group-that-is-made-again-begins-with-the-first-epoch",
        rule="SHG-6",
        breaks="a late write for a group that was deleted counts for the one of the same name",
        edits=(Edit(_GROUPS, "                self._ended_takers.add(group)\n", ""),),
        tests=(
            f"{_GROUP_TESTS}::"
            "test_a_group_that_is_made_again_goes_on_with_the_epochs_of_the_former_one",
        ),
    ),
    Mutant(
        name="a-share-partition-is-given-before-its-state-is-there",
        rule="SHG-1",
        breaks="members take from partitions of which no share coordinator knows",
        edits=(
            Edit(
                _ASSIGNOR,
                "if (some := frozenset(range(count)) & initialized.get(topic_id, frozenset()))",
                "if (some := frozenset(range(count)))",
            ),
        ),
        tests=(
            f"{_GROUP_TESTS}::test_a_member_gets_partitions_when_their_states_are_there",
            f"{_ASSIGNOR_TESTS}::test_only_initialized_partitions_are_wanted",
        ),
    ),
    Mutant(
        name="a-share-group-ends-before-its-states",
        rule="SHG-3",
        breaks="share coordinators keep states of groups that are gone",
        edits=(
            Edit(
                _EVENTS,
                "if group.subscriptions or group.state_topics.everything:",
                "if group.subscriptions:",
            ),
        ),
        tests=(f"{_GROUP_TESTS}::test_a_group_ends_after_its_states",),
    ),
    Mutant(
        name="a-former-leader-may-write-its-share-state",
        rule="SHS-2",
        breaks="what a leader acknowledged is overwritten by the one before it",
        edits=(
            Edit(
                _STATES,
                "if change.leader_epoch < state.leader_epoch:",
                "if change.leader_epoch < 0:",
            ),
        ),
        tests=(
            f"{_STATE_TESTS}::test_an_earlier_leader_is_fenced_as_soon_as_a_later_one_has_read",
        ),
        is_sample=True,
    ),
    Mutant(
        name="a-leader-that-reads-is-not-written-down",
        rule="SHS-2",
        breaks="the next share coordinator lets the leader of before write",
        edits=(
            Edit(
                _STATES,
                "return StateOutcome(answer, (UpdateRecord(event.key, update),))",
                "return StateOutcome(answer)",
            ),
        ),
        tests=(
            f"{_STATE_TESTS}::test_an_earlier_leader_is_fenced_as_soon_as_a_later_one_has_read",
        ),
    ),
    Mutant(
        name="a-state-that-was-begun-anew-takes-what-was-meant-for-the-former",
        rule="SHS-2",
        breaks="offsets that were altered are altered back",
        edits=(
            Edit(
                _STATES,
                "if change.state_epoch != state.state_epoch:",
                "if change.state_epoch > state.state_epoch:",
            ),
        ),
        tests=(f"{_STATE_TESTS}::test_a_state_that_was_begun_anew_fences_who_read_the_former_one",),
    ),
    Mutant(
        name="a-beginning-that-comes-twice-forgets-everything",
        rule="SHS-4",
        breaks="a repeated request of a coordinator undoes what was acknowledged since",
        edits=(
            Edit(
                _STATES,
                "if event.state_epoch == kept.state.state_epoch:",
                "if event.state_epoch < 0:",
            ),
        ),
        tests=(f"{_STATE_TESTS}::test_a_beginning_that_comes_twice_changes_nothing",),
    ),
    Mutant(
        name="share-states-are-pruned-up-to-the-newest-snapshot",
        rule="SHS-3",
        breaks="a share partition is forgotten because another one was written later",
        edits=(
            Edit(
                _STATES,
                "return min((one.snapshot_offset",
                "return max((one.snapshot_offset",
            ),
        ),
        tests=(f"{_STATE_TESTS}::TestCoordinator",),
    ),
    Mutant(
        name="share-states-are-pruned-before-their-snapshot-is-committed",
        rule="SHS-3",
        breaks="a failover loses a snapshot, and what it made superfluous was deleted",
        edits=(
            Edit(
                _SHARD,
                "        if self._log.end_offset > self._log.committed_offset:",
                "        if False:",
            ),
        ),
        tests=(
            "unit/shares/test_share_state_shard.py"
            "::test_the_log_is_not_pruned_before_the_snapshot_is_committed",
        ),
    ),
    Mutant(
        name="a-late-write-takes-an-acknowledgement-back",
        rule="SHS-1",
        breaks="a record that was accepted is delivered again",
        edits=(
            Edit(
                _BATCHES,
                "furthest = max(open_batches, key=_progress)",
                "furthest = open_batches[-1]",
            ),
        ),
        tests=(f"{_BATCH_TESTS}::test_a_late_write_takes_nothing_back",),
    ),
    Mutant(
        name="a-stored-start-goes-back",
        rule="SHS-6",
        breaks="a leader that did not hear that its write counts takes back what was confirmed",
        edits=(
            Edit(
                _STATES,
                "    if start_offset < state.start_offset and "
                "change.leader_epoch == kept.writer_epoch:",
                "    if False:",
            ),
        ),
        tests=(
            f"{_STATE_TESTS}::"
            "test_a_leader_that_does_not_know_that_a_write_counts_takes_nothing_back",
        ),
    ),
)
