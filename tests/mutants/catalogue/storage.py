"""Logs on disk: recovery, flushing, truncation, epochs, producers, what may be deleted."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_LOG = "moldau.storage.log"
_FLUSH = "moldau.storage.log_flush"
_RECOVERY = "moldau.storage.recovery"
_RECOVERED_EPOCHS = "moldau.storage.recovered_epochs"
_PLAN = "moldau.storage.rules.recovery_plan"
_STORE = "moldau.storage.log_store"
_CLEANING = "moldau.storage.rules.cleaning_plan"
_DIRECTORY = "moldau.storage.log_directory"
_COMPACTION = "moldau.storage.rules.compaction"
_RETENTION = "moldau.storage.rules.retention"
_SCAN = "moldau.storage.batch_scan"
_EPOCHS = "moldau.storage.rules.epoch_cache"
_SEGMENT = "moldau.storage.segment"
_BRANCH = "moldau.storage.log_branch"
_BRANCHING = "moldau.storage.rules.branching"
_SEQUENCES = "moldau.storage.rules.producer_sequences"
_UNIT = "unit/storage"

MUTANTS = (
    Mutant(
        name="a-producer-of-old-records-is-forgotten-at-a-restart",
        rule="SEQ-2",
        breaks="a snapshot keeps the timestamp of the records, not the time of the last batch",
        edits=(
            Edit(
                "moldau.storage.producer_state",
                "if entry.last_timestamp_ms >= heard_ms[producer_id]",
                "if heard_ms",
            ),
        ),
        tests=(
            f"{_UNIT}/test_producer_state.py::"
            "test_a_producer_of_old_records_is_remembered_by_the_time_at_which_the_broker_heard_from_it",
        ),
    ),
    # Recovery
    Mutant(
        name="recovery-without-crc",
        rule="LOG-6",
        breaks="damaged batches are taken for whole when a log is recovered",
        edits=(Edit(_SCAN, "        and crc_matches(batch, header)\n", ""),),
        tests=(f"{_UNIT}/test_recovery.py::test_garbage_behind_or_inside_the_last_batch_is_cut",),
    ),
    Mutant(
        name="recovery-brings-back-what-was-truncated",
        rule="LOG-6",
        breaks="bytes of an older epoch behind newer ones count as part of the log",
        edits=(
            Edit(
                _SCAN, "is_left_over = header.leader_epoch < leader_epoch", "is_left_over = False"
            ),
        ),
        tests=(f"{_UNIT}/test_left_over_batches.py",),
    ),
    Mutant(
        name="recovery-skips-a-lost-end",
        rule="LOG-6",
        breaks="a segment that lost its end is followed by the next one as if nothing were missing",
        edits=(
            Edit(
                _PLAN,
                "    return end_offset == start_offset or",
                "    return end_offset <= start_offset or",
            ),
        ),
        tests=(f"{_UNIT}/test_recovery.py::test_a_segment_that_lost_its_end_ends_the_log",),
    ),
    Mutant(
        name="recovery-keeps-overlapping-segments",
        rule="LOG-6",
        breaks="a file that a truncation removed, and a power loss brought back, is in the log",
        edits=(
            Edit(
                _PLAN,
                "    return end_offset == start_offset or",
                "    return end_offset >= start_offset or",
            ),
        ),
        tests=(
            f"{_UNIT}/test_power_loss.py::"
            "test_segments_that_overlap_are_what_a_truncation_had_removed",
        ),
    ),
    Mutant(
        name="less-than-was-flushed-counts-as-whole",
        rule="REP-6",
        breaks="a log that ends before its recovery point or high watermark does not say so",
        edits=(Edit(_RECOVERY, "        if end_offset < promised:\n", "        if False:\n"),),
        tests=(
            f"{_UNIT}/test_power_loss.py::"
            "test_a_log_that_ends_before_what_was_flushed_or_committed_says_so",
        ),
    ),
    Mutant(
        name="a-failed-sync-forgotten",
        rule="REP-6",
        breaks="the next process takes for written what the system failed to write",
        edits=(
            Edit(
                _DIRECTORY,
                "        if isinstance(error, FailedSyncError):\n",
                "        if False:\n",
            ),
        ),
        tests=(
            f"{_UNIT}/test_power_loss.py::"
            "test_after_a_failed_sync_the_next_process_takes_no_log_of_the_folder_for_whole",
        ),
    ),
    Mutant(
        name="a-new-log-not-on-disk",
        rule="LOG-10",
        breaks="a log that counts as a replica is gone after a power loss",
        edits=(
            Edit(
                _RECOVERY,
                "    directory.files.sync_folder(folder)\n"
                "    directory.files.sync_folder(folder.parent)\n",
                "",
            ),
        ),
        tests=(
            f"{_UNIT}/test_power_loss.py::"
            "test_after_a_clean_stop_an_empty_and_a_truncated_log_survive_a_power_loss",
        ),
    ),
    Mutant(
        name="a-clean-stop-whatever-failed",
        rule="LOG-10",
        breaks="the marker of a clean stop is there although a log could not be flushed",
        edits=(Edit(_STORE, "                    unclean.add(log.directory)\n", ""),),
        tests=(
            f"{_UNIT}/test_power_loss.py::test_a_stop_with_a_flush_that_failed_is_no_clean_one",
        ),
    ),
    Mutant(
        name="compaction-takes-the-last-of-a-key",
        rule="REP-3",
        breaks="the last value of a key goes as if there were a later one",
        edits=(
            Edit(
                _COMPACTION,
                "keys.latest.add(payload, header.record_count, header.base_offset, ",
                "keys.latest.add(payload, header.record_count, header.base_offset + 1, ",
            ),
        ),
        seeds=Seeds(by=("REP-3", "REP-2", "GRP")),
        tests=(f"{_UNIT}/rules/test_compaction.py",),
    ),
    Mutant(
        name="compaction-takes-what-is-not-committed",
        rule="LOG-11",
        breaks="a committed record goes for one that may be truncated away",
        edits=(
            Edit(
                _CLEANING,
                "min(segments[-1].base_offset, log.last_stable_offset, log.recovery_point)",
                "min(segments[-1].base_offset, log.recovery_point)",
            ),
        ),
        tests=(
            f"{_UNIT}/rules/test_cleaning_plan.py::"
            "test_what_is_not_committed_decided_or_flushed_is_left_alone",
        ),
    ),
    Mutant(
        name="retention-keeps-less-than-it-has-to",
        rule="LOG-12",
        breaks="the segment with which `retention.bytes` would be kept goes, too",
        edits=(
            Edit(
                _RETENTION,
                "            excess -= segment.size_bytes\n            if excess < 0:",
                "            excess -= segment.size_bytes\n"
                "            if excess < -self.retention_bytes:",
            ),
        ),
        seeds=Seeds(by=("LOG-12",)),
        tests=(f"{_UNIT}/rules/test_retention.py",),
    ),
    Mutant(
        name="compaction-past-what-was-flushed",
        rule="LOG-11",
        breaks="a record goes although the one that replaces it may be lost with the power",
        edits=(
            Edit(
                _CLEANING,
                "    return max(starts, default=segments[0].base_offset)\n",
                "    return max(starts, default=log.log_start_offset)\n",
            ),
        ),
        tests=(
            f"{_UNIT}/test_power_loss.py::"
            "test_compaction_stays_below_the_recovery_point_when_the_log_begins_above_it",
        ),
    ),
    Mutant(
        name="recovery-keeps-what-is-behind-damage",
        rule="LOG-6",
        breaks="segments behind a damaged one stay",
        edits=(
            Edit(
                _RECOVERY,
                "        self._remove(self._segments[number + 1 :])\n"
                "        del self._segments[number + 1 :]\n",
                "",
            ),
        ),
        tests=(f"{_UNIT}/test_recovery.py::test_what_is_behind_damage_goes_too",),
    ),
    Mutant(
        name="recovery-does-not-tell-what-is-lost",
        rule="REP-6",
        breaks="a log that lost written batches says nothing of it",
        edits=(
            Edit(
                _RECOVERY,
                "log.has_lost_its_end = self._has_lost_its_end",
                "log.has_lost_its_end = False",
            ),
        ),
        tests=(f"{_UNIT}/test_recovery.py::test_a_segment_that_lost_its_end_ends_the_log",),
    ),
    Mutant(
        name="recovery-scans-nothing",
        rule="LOG-6",
        breaks="after a crash a log is opened as after a clean stop",
        edits=(
            Edit(
                "moldau.storage.rules.recovery_plan",
                "    if clean_shutdown:\n        return ()\n",
                "    if segments or clean_shutdown:\n        return ()\n",
            ),
        ),
        tests=(
            f"{_UNIT}/rules/test_recovery_plan.py::"
            "test_scanning_starts_with_the_segment_that_was_active_at_the_recovery_point",
            f"{_UNIT}/test_recovery.py::test_a_cut_at_any_byte_leaves_exactly_the_whole_batches",
        ),
    ),
    Mutant(
        name="a-file-on-a-failed-disk-is-absent",
        rule="LOG-6",
        breaks="a path that cannot be looked at counts as absent",
        edits=(
            Edit(
                "moldau.storage.files",
                "except (FileNotFoundError, NotADirectoryError):",
                "except OSError:",
            ),
        ),
        tests=(
            "contract/test_files.py::test_a_path_that_cannot_be_looked_at_does_not_count_as_absent",
        ),
    ),
    Mutant(
        name="the-marker-of-a-clean-stop-stays",
        rule="LOG-6",
        breaks="the marker of a clean stop vouches for a later crash",
        edits=(
            Edit(
                "moldau.storage.clean_marker",
                "    files.remove(marker)\n",
                "    files.exists(marker)\n",
            ),
        ),
        tests=(
            f"{_UNIT}/test_log_store.py::"
            "test_the_marker_of_a_clean_stop_is_kafkas_and_is_there_only_between_stop_and_start",
        ),
    ),
    Mutant(
        name="the-marker-comes-back-with-a-power-loss",
        rule="LOG-6",
        breaks="that the marker was taken away is not on disk before a log is opened",
        edits=(
            Edit(
                "moldau.storage.clean_marker",
                "    files.sync_folder(folder)\n    return closed\n",
                "    return closed\n",
            ),
        ),
        tests=(f"{_UNIT}/test_log_store.py::test_the_marker_does_not_come_back_with_a_power_loss",),
    ),
    Mutant(
        name="lost-segments-go-unnoticed",
        rule="LOG-13",
        breaks="a clean stop vouches for sealed segments that are gone",
        edits=(
            Edit(
                "moldau.storage.clean_marker",
                "            len(sealed) != self.sealed_count\n            or sealed[0][0]",
                "            not sealed\n            or sealed[0][0]",
            ),
            Edit(
                "moldau.storage.clean_marker",
                "!= self.sealed_bytes",
                "< 0",
            ),
        ),
        seeds=Seeds(count=8, kinds=("LOSE_FILES",), options=(("log.roll.ms", "400"),)),
        tests=(
            f"{_UNIT}/test_clean_marker.py::"
            "test_a_sealed_segment_that_is_gone_is_noticed_and_nothing_else_goes",
        ),
    ),
    Mutant(
        name="a-clean-stop-vouches-for-a-short-active-segment",
        rule="LOG-13",
        breaks="an active segment that was cut short is not read and checked",
        edits=(
            Edit(
                "moldau.storage.recovery",
                "        if has_lost_active or self._is_incomplete:\n",
                "        if self._is_incomplete:\n",
            ),
        ),
        tests=(
            f"{_UNIT}/test_clean_marker.py::"
            "test_an_active_segment_that_is_short_is_read_and_checked",
        ),
    ),
    Mutant(
        name="a-short-active-segment-is-a-whole-log",
        rule="LOG-13",
        breaks="a log whose checkpoints are lost does not say that its active segment is short",
        edits=(
            Edit(
                "moldau.storage.recovery",
                "        if closed is not None and closed.has_lost_end(found):\n",
                "        if False:\n",
            ),
        ),
        tests=(
            f"{_UNIT}/test_clean_marker.py::"
            "test_an_active_segment_that_is_short_is_noticed_without_checkpoints",
        ),
    ),
    Mutant(
        name="a-hole-inside-is-forgotten",
        rule="LOG-13",
        breaks="a process that is killed before it says so forgets which segments were lost",
        edits=(
            Edit(
                "moldau.storage.recovery",
                "self._is_incomplete = has_lost_sealed or INCOMPLETE_FILE in names",
                "self._is_incomplete = has_lost_sealed",
            ),
        ),
        tests=(
            f"{_UNIT}/test_clean_marker.py::"
            "test_a_hole_is_remembered_until_somebody_has_said_what_becomes_of_it",
        ),
    ),
    Mutant(
        name="deleted-keys-come-back-with-a-late-follower",
        rule="REP-9",
        breaks="who was away for longer than tombstones are kept goes on from where it was",
        edits=(
            Edit(
                "moldau.replication.rules.truncation",
                "    if last_fetched_epoch < 0 or not log_start",
                "    if log_start_offset >= 0 or not log_start",
            ),
        ),
        tests=(
            "unit/replication/test_follower_truncation.py::"
            "test_who_was_away_for_longer_than_tombstones_are_kept_copies_everything_again",
        ),
    ),
    Mutant(
        name="who-copies-a-compacted-log-never-ends",
        rule="REP-9",
        breaks="each fetch that ends before a dropped tombstone begins again at the log's start",
        edits=(
            Edit(
                "moldau.replication.followers",
                "        if copying and copying.get(",
                "        if copying is None and {}.get(",
            ),
        ),
        tests=(
            "unit/replication/test_follower_truncation.py::"
            "test_who_copies_a_log_from_its_start_gets_through_its_dropped_tombstones",
        ),
    ),
    Mutant(
        name="a-compacted-log-is-cut-like-any-other",
        rule="REP-8",
        breaks="what compaction has left out for later records is gone when those are cut off",
        edits=(
            Edit(
                "moldau.replication.rules.truncation",
                "is_compacted = offset < max(cleaned_offset, compared_offset)",
                "is_compacted = False",
            ),
        ),
        tests=(
            "unit/replication/test_follower_truncation.py::"
            "test_a_compacted_log_that_is_cut_below_what_was_compared_is_copied_again",
        ),
    ),
    Mutant(
        name="a-round-goes-on-after-a-truncation",
        rule="REP-8",
        breaks="values go for the sake of later ones that were cut off in the middle of the round",
        edits=(
            Edit(
                "moldau.storage.compaction_round",
                "if self._log.truncations != self._truncations:",
                "if False:",
            ),
        ),
        tests=(
            "unit/storage/test_cleaner_crashes.py::"
            "test_what_a_truncation_takes_at_any_step_has_replaced_nothing",
        ),
    ),
    Mutant(
        name="a-crash-forgets-what-a-round-has-compared",
        rule="REP-8",
        breaks="a log that was killed in the middle of a round is cut like any other",
        edits=(
            Edit(
                "moldau.storage.compaction_round",
                "        if offsets != self._noted:",
                "        if False:",
            ),
        ),
        tests=(
            "unit/storage/test_compaction_file.py::"
            "test_a_log_knows_of_dropped_tombstones_without_any_checkpoint",
        ),
    ),
    Mutant(
        name="the-checkpoint-alone-knows-where-a-log-begins",
        rule="LOG-12",
        breaks="records that somebody deleted are there again when a checkpoint is lost",
        edits=(
            Edit(
                "moldau.storage.recovery",
                "        if not self._terms.is_start_known:\n",
                "        if False:\n",
            ),
        ),
        tests=(
            f"{_UNIT}/test_log_start_file.py::"
            "test_what_was_deleted_stays_so_when_the_checkpoint_is_lost",
        ),
    ),
    # Flushing
    Mutant(
        name="a-sync-proves-what-came-after-it",
        rule="LOG-7",
        breaks="the recovery point moves to where the log ends when the sync ends",
        edits=(
            Edit(
                _FLUSH,
                "min(plan.end_offset, self._kept_end())",
                "self._kept_end()",
            ),
        ),
        tests=(
            f"{_UNIT}/test_log_flush.py::"
            "test_what_is_appended_while_a_sync_runs_is_not_covered_by_it",
        ),
    ),
    Mutant(
        name="a-sync-proves-what-was-truncated",
        rule="LOG-7",
        breaks="a sync that began before a truncation moves the recovery point after it",
        edits=(
            Edit(
                _FLUSH,
                "if plan.disturbances == self._local.disturbances:",
                "if plan.end_offset >= 0:",
            ),
        ),
        tests=(
            f"{_UNIT}/test_log_flush.py::test_a_sync_that_began_before_a_truncation_proves_nothing",
        ),
    ),
    Mutant(
        name="a-truncation-keeps-the-recovery-point",
        rule="LOG-7",
        breaks="what is written where a log was truncated counts as flushed",
        edits=(
            Edit(
                _FLUSH,
                "        self.recovery_point = min(self.recovery_point, end_offset)\n",
                "",
            ),
        ),
        tests=(
            f"{_UNIT}/test_log_flush.py::"
            "test_what_takes_the_place_of_truncated_batches_is_not_flushed_yet",
        ),
    ),
    Mutant(
        name="flush-without-sync",
        rule="LOG-7",
        breaks="a flush moves the recovery point, and the disk has nothing",
        edits=(
            Edit(
                _FLUSH,
                "        for segment in plan.segments:\n            segment.sync()\n",
                "",
            ),
        ),
        tests=(f"{_UNIT}/test_recovery.py::test_what_was_flushed_survives_a_power_loss",),
    ),
    Mutant(
        name="a-torn-write-stays",
        rule="LOG-8",
        breaks="what a failed write left behind stays in the file",
        edits=(
            Edit(
                _LOG,
                "        except OSError as error:\n            local.active.trim_file()\n",
                "        except OSError as error:\n",
            ),
        ),
        seeds=Seeds(count=6, kinds=("FAIL_WRITE", "CRASH")),
        redundant=(
            "a write that fails takes the folder offline (LOG-8), so the log is recovered before "
            "it is used again, and recovery cuts off what has no good CRC (recovery-without-crc)"
        ),
    ),
    # Epochs
    Mutant(
        name="a-follower-notes-no-epochs",
        rule="REP-2",
        breaks="where epochs begin is not noted when batches are copied",
        edits=(
            Edit(
                _LOG,
                "epochs.cache = epochs.cache.assign(header.leader_epoch, header.base_offset)",
                "pass",
            ),
        ),
        seeds=Seeds(),
        tests=(
            f"{_UNIT}/test_log_append.py::test_a_follower_keeps_the_leaders_offsets_and_epochs",
        ),
    ),
    Mutant(
        name="epochs-stay-when-their-records-go",
        rule="REP-2",
        breaks="a truncated log remembers epochs that begin behind its end",
        edits=(
            Edit(
                _LOG,
                "        self._epochs.cache = self.epochs.truncate_from_end(end_offset)\n"
                "        self._snapshots",
                "        self._snapshots",
            ),
        ),
        tests=(
            f"{_UNIT}/test_log_retention.py::test_truncation_removes_segments_batches_and_epochs",
        ),
    ),
    Mutant(
        name="an-epoch-that-was-truncated-comes-back",
        rule="REP-2",
        breaks="recovery believes an epoch file that is older than a truncation",
        edits=(
            Edit(
                _RECOVERED_EPOCHS,
                "if known is not None and 0 <= header.leader_epoch < known:",
                "if known is not None and header.leader_epoch < -1:",
            ),
        ),
        tests=(
            f"{_UNIT}/test_recovery.py::"
            "test_an_epoch_whose_records_were_truncated_does_not_come_back",
        ),
    ),
    Mutant(
        name="epochs-not-flushed",
        rule="REP-2",
        breaks="a flush leaves the epoch file as it was",
        edits=(
            Edit(
                _FLUSH,
                "if plan.epochs is not None:\n            write_epochs",
                "if plan.epochs is not None and plan.end_offset < 0:\n            write_epochs",
            ),
        ),
        tests=(f"{_UNIT}/test_log_flush.py::test_a_flush_writes_indexes_epochs_and_snapshots",),
    ),
    Mutant(
        name="an-epoch-begins-again",
        rule="REP-2",
        breaks="an epoch that is noted again begins later than it did",
        edits=(
            Edit(
                _EPOCHS,
                "            if epoch == latest.epoch and start_offset >= latest.start_offset:\n"
                "                return self\n",
                "            if epoch == latest.epoch and start_offset >= latest.start_offset:\n"
                "                return EpochCache((*self.entries[:-1], "
                "EpochStart(epoch, start_offset)))\n",
            ),
        ),
        tests=(f"{_UNIT}/rules/test_epoch_cache.py::test_an_epoch_is_assigned_once",),
    ),
    # Producers
    Mutant(
        name="append-a-batch-that-came-again",
        rule="SEQ-2",
        breaks="a batch that is in the log already is appended once more",
        edits=(
            Edit(
                _SEQUENCES,
                "        return _require_duplicate(entry, header)\n    if entry.transaction",
                "        _require_duplicate(entry, header)\n    if entry.transaction",
            ),
        ),
        seeds=Seeds(),
        tests=(
            f"{_UNIT}/test_log_append.py::"
            "test_a_batch_that_comes_again_is_answered_with_its_first_offsets",
        ),
    ),
    Mutant(
        name="producers-are-not-taken-back",
        rule="SEQ-3",
        breaks="after a truncation the table knows batches that are gone",
        edits=(
            Edit(
                _LOG,
                "        rebuild_producers(\n            self.producers,\n",
                "        (lambda *_: None)(\n            self.producers,\n",
            ),
        ),
        tests=(
            f"{_UNIT}/test_log_retention.py::"
            "test_a_producer_whose_batches_were_truncated_is_what_it_was_before",
        ),
    ),
    # Deleting
    Mutant(
        name="retention-past-the-high-watermark",
        rule="HW-1",
        breaks="retention deletes what is not committed",
        edits=(
            Edit(
                "moldau.storage.rules.retention",
                "return sum(end <= log.high_watermark for end in ends)",
                "return len(ends)",
            ),
        ),
        tests=(
            f"{_UNIT}/rules/test_retention.py::test_nothing_at_or_above_the_high_watermark_goes",
        ),
    ),
    Mutant(
        name="delete-records-that-are-not-committed",
        rule="HW-1",
        breaks="DeleteRecords passes the high watermark",
        edits=(
            Edit(
                "moldau.replication.partition",
                "if not 0 <= offset <= high_watermark:",
                "if offset < 0:",
            ),
        ),
        tests=("unit/replication/test_partition.py::test_what_is_not_committed_is_not_deleted",),
    ),
    # Branches
    Mutant(
        name="truncation-into-a-shared-file",
        rule="BRA-1",
        breaks="a truncation cuts a file that another log has, too",
        edits=(
            Edit(
                _SEGMENT,
                "self.unshare(self.size_bytes if boundary is None else boundary.position)\n",
                "\n",
            ),
        ),
        tests=(f"{_UNIT}/test_log_branch.py",),
    ),
    Mutant(
        name="branch-shares-what-is-appended-to",
        rule="BRA-1",
        breaks="the active segment of a log is linked into a branch",
        edits=(Edit(_BRANCHING, "    last = len(base_offsets) - 1\n", "    last = len(ends)\n"),),
        tests=("unit/storage/rules/test_branching.py",),
    ),
    Mutant(
        name="branch-takes-later-epochs",
        rule="BRA-2",
        breaks="a branch takes batches of an epoch that its own leader uses",
        edits=(
            Edit(
                _BRANCHING,
                "epochs.latest_epoch is None or epochs.latest_epoch <= newest_epoch",
                "epochs.latest_epoch is None or newest_epoch >= 0",
            ),
        ),
        tests=("unit/storage/rules/test_branching.py",),
    ),
    Mutant(
        name="branch-with-the-producers-of-its-origin",
        rule="BRA-2",
        breaks="a producer that writes to both topics is taken for one that repeats itself",
        edits=(Edit(_BRANCH, "        self._forget_producers(plan.end_offset)\n", ""),),
        tests=(f"{_UNIT}/test_log_branch.py",),
    ),
    Mutant(
        name="branch-follower-takes-what-its-origin-has-left",
        rule="BRA-4",
        breaks="a replica lacks records of a branch that its origin has lost meanwhile",
        edits=(
            Edit(
                "moldau.replication.rules.branch_start",
                "return is_leader or (was_seen_made and not is_compacted)",
                "return is_leader or was_seen_made or not is_compacted",
            ),
        ),
        tests=("unit/replication/rules/test_branch_start.py",),
    ),
    Mutant(
        name="branch-leader-knows-the-producers-of-its-origin",
        rule="BRA-5",
        breaks="records of a producer that wrote to the origin are acknowledged and not appended",
        edits=(
            Edit(
                "moldau.replication.partition",
                "            self._forget_producers_of_origin()\n",
                "",
            ),
        ),
        tests=("unit/replication/test_branches.py",),
    ),
    Mutant(
        name="branch-begins-in-an-epoch-of-its-origin",
        rule="BRA-2",
        breaks="batches of two topics have the same epoch",
        edits=(
            Edit(
                "moldau.cluster.rules.topic_branch",
                "leader_epoch=LeaderEpoch(newest + 1)",
                "leader_epoch=newest",
            ),
        ),
        tests=("unit/cluster/rules/test_topic_branch.py",),
    ),
    Mutant(
        name="branch-while-segments-change",
        rule="BRA-3",
        breaks="a branch is taken for whole although the log was changed under it",
        edits=(
            Edit(
                _BRANCH,
                "if is_even and is_same and source.disturbances == disturbances:",
                "if is_even:",
            ),
        ),
        tests=(f"{_UNIT}/test_log_branch.py",),
    ),
    # What comes from elsewhere, and damage beside the batches
    Mutant(
        name="take-any-index-of-aborted-transactions",
        rule="TXP-4",
        breaks="a lost or damaged .txnindex file is taken for what it was",
        edits=(
            Edit(
                _RECOVERY, "return index.digest != (expected or EMPTY_DIGEST)\n", "return False\n"
            ),
        ),
        tests=(f"{_UNIT}/test_damaged_files.py",),
    ),
    Mutant(
        name="no-epochs-without-their-file",
        rule="REP-2",
        breaks="a log whose leader-epoch-checkpoint is gone knows of no epoch",
        edits=(
            Edit(
                _RECOVERED_EPOCHS,
                "if self._is_damaged or self._is_lacking(segments):",
                "if self._is_damaged:",
            ),
        ),
        tests=(f"{_UNIT}/test_damaged_files.py",),
    ),
    Mutant(
        name="cut-off-what-no-index-can-describe",
        rule="LOG-6",
        breaks="batches too far from their segment's base offset are damage wherever they are",
        edits=(Edit(_SEGMENT, "header.last_offset < known_end:", "header.last_offset < 0:"),),
        tests=(f"{_UNIT}/test_segment_split.py",),
    ),
    Mutant(
        name="a-move-is-started-before-its-copy-is-there",
        rule="moves between log directories",
        breaks="one of several replicas that a request moves stays where it was",
        edits=(
            Edit(
                "moldau.storage.log_moves",
                "for move in self._moves.values() if move.has_copy)",
                "for move in self._moves.values())",
            ),
        ),
        tests=(f"{_UNIT}/test_log_moves.py::test_a_move_is_not_started_before_its_copy_is_there",),
    ),
    Mutant(
        name="a-move-that-is-called-off-is-started-again",
        rule="moves between log directories",
        breaks="a log has two copies that are under way",
        edits=(
            Edit("moldau.storage.log_moves", "self._moves.pop(key, None)", "self._moves.get(key)"),
        ),
        tests=(f"{_UNIT}/test_log_moves.py::test_a_move_that_is_called_off_is_not_started_again",),
    ),
)
