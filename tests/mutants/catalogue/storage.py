"""Logs on disk: recovery, flushing, truncation, epochs, producers, what may be deleted."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_LOG = "moldau.storage.log"
_FLUSH = "moldau.storage.log_flush"
_RECOVERY = "moldau.storage.log_loader"
_RECOVERED_EPOCHS = "moldau.storage.log_loader"
_STORE = "moldau.storage.log_store"
_DIRECTORY = "moldau.storage.log_directory"
_COMPACTION = "moldau.storage.rules.log_cleaner"
_RETENTION = "moldau.storage.rules.retention"
_SCAN = "moldau.storage.file_records"
_SEGMENT = "moldau.storage.segment"
_BRANCH = "moldau.storage.log_branch"
_SEQUENCES = "moldau.storage.rules.producer_state"
_UNIT = "unit/storage"

MUTANTS = (
    Mutant(
        name="a-producer-of-old-records-is-forgotten-at-a-restart",
        rule="SEQ-2",
        breaks="a snapshot keeps the timestamp of the records, not the time of the last batch",
        edits=(
            Edit(
                "moldau.storage.rules.producer_state",
                "ProducerState.to_store",
                "entry.last_timestamp_ms >= heard_ms[producer_id]",
                "heard_ms",
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
        edits=(Edit(_SCAN, "_is_sound", "crc_matches(batch, header)"),),
        tests=(f"{_UNIT}/test_recovery.py::test_garbage_behind_or_inside_the_last_batch_is_cut",),
    ),
    Mutant(
        name="recovery-brings-back-what-was-truncated",
        rule="LOG-6",
        breaks="bytes of an older epoch behind newer ones count as part of the log",
        edits=(Edit(_SCAN, "walk_valid_batches", "header.leader_epoch < leader_epoch", "False"),),
        tests=(f"{_UNIT}/test_left_over_batches.py",),
    ),
    Mutant(
        name="less-than-was-flushed-counts-as-whole",
        rule="REP-6",
        breaks="a log that ends before its recovery point or high watermark does not say so",
        edits=(Edit(_RECOVERY, "_LogLoader._look_for_loss", "end_offset < promised", "False"),),
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
            Edit(_DIRECTORY, "LogDirectory.fail", "isinstance(error, FailedSyncError)", "False"),
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
                "create_log",
                "directory.files.sync_folder(folder)\ndirectory.files.sync_folder(folder.parent)",
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
        edits=(Edit(_STORE, "LogStore._shut_down_logs.shut_down", "unclean.add(log.directory)"),),
        tests=(
            f"{_UNIT}/test_power_loss.py::test_a_stop_with_a_flush_that_failed_is_no_clean_one",
        ),
    ),
    Mutant(
        name="compaction-takes-the-last-of-a-key",
        rule="REP-3",
        breaks="the last value of a key goes as if there were a later one",
        edits=(Edit(_COMPACTION, "map_batch", "header.base_offset", "header.base_offset + 1"),),
        seeds=Seeds(by=("REP-3", "REP-2", "GRP")),
        tests=(f"{_UNIT}/rules/test_compaction.py",),
    ),
    Mutant(
        name="retention-keeps-less-than-it-has-to",
        rule="LOG-12",
        breaks="the segment with which `retention.bytes` would be kept goes, too",
        edits=(
            Edit(
                _RETENTION,
                "SizeRetention.deletable",
                "excess < 0",
                "excess < -self.retention_bytes",
            ),
        ),
        seeds=Seeds(by=("LOG-12",)),
        tests=(f"{_UNIT}/rules/test_retention.py",),
    ),
    Mutant(
        name="recovery-keeps-what-is-behind-damage",
        rule="LOG-6",
        breaks="segments behind a damaged one stay",
        edits=(
            Edit(
                _RECOVERY,
                "_LogLoader._end_with",
                "self._remove(self._segments[number + 1:])\ndel self._segments[number + 1:]",
            ),
        ),
        tests=(f"{_UNIT}/test_recovery.py::test_what_is_behind_damage_goes_too",),
    ),
    Mutant(
        name="recovery-does-not-tell-what-is-lost",
        rule="REP-6",
        breaks="a log that lost written batches says nothing of it",
        edits=(Edit(_RECOVERY, "_LogLoader.load", "self._has_lost_its_end", "False"),),
        tests=(f"{_UNIT}/test_recovery.py::test_a_segment_that_lost_its_end_ends_the_log",),
    ),
    Mutant(
        name="a-file-on-a-failed-disk-is-absent",
        rule="LOG-6",
        breaks="a path that cannot be looked at counts as absent",
        edits=(
            Edit(
                "moldau.storage.files",
                "RealFiles.exists",
                "(FileNotFoundError, NotADirectoryError)",
                "OSError",
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
                "moldau.storage.checkpoint_files",
                "take_clean_marker",
                "files.remove(marker)",
                "files.exists(marker)",
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
                "moldau.storage.checkpoint_files", "take_clean_marker", "files.sync_folder(folder)"
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
                "moldau.storage.checkpoint_files",
                "ClosedSegments.has_lost_sealed",
                "len(sealed) != self.sealed_count",
                "not sealed",
            ),
            Edit(
                "moldau.storage.checkpoint_files",
                "ClosedSegments.has_lost_sealed",
                "sum((size for _, size in sealed)) != self.sealed_bytes",
                "sum((size for _, size in sealed)) < 0",
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
                "moldau.storage.log_loader",
                "_LogLoader._compare_with_stop",
                "has_lost_active or self._is_incomplete",
                "self._is_incomplete",
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
                "moldau.storage.log_loader",
                "_LogLoader._compare_with_stop",
                "closed is not None and closed.has_lost_end(found)",
                "False",
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
                "moldau.storage.log_loader",
                "_LogLoader._compare_with_stop",
                "has_lost_sealed or INCOMPLETE_FILE in names",
                "has_lost_sealed",
            ),
        ),
        tests=(
            f"{_UNIT}/test_clean_marker.py::"
            "test_a_hole_is_remembered_until_somebody_has_said_what_becomes_of_it",
        ),
    ),
    Mutant(
        name="who-copies-a-compacted-log-never-ends",
        rule="REP-9",
        breaks="each fetch that ends before a dropped tombstone begins again at the log's start",
        edits=(
            Edit(
                "moldau.replication.partition",
                "Partition._find_missed_deletions",
                "copying and copying.get(wanted.replica) == wanted.broker_epoch",
                "copying is None and {}.get(wanted.replica) == wanted.broker_epoch",
            ),
        ),
        tests=(
            "unit/replication/test_follower_truncation.py::"
            "test_who_copies_a_log_from_its_start_gets_through_its_dropped_tombstones",
        ),
    ),
    Mutant(
        name="a-round-goes-on-after-a-truncation",
        rule="REP-8",
        breaks="values go for the sake of later ones that were cut off in the middle of the round",
        edits=(
            Edit(
                "moldau.storage.log_cleaner",
                "CompactionRound._require_untruncated",
                "self._log.truncations != self._truncations",
                "False",
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
                "moldau.storage.log_cleaner",
                "CompactionRound._swap_in",
                "offsets != self._noted",
                "False",
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
                "moldau.storage.log_loader",
                "_LogLoader._find_start",
                "not self._terms.is_start_known",
                "False",
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
                "LogFlush._apply",
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
                "LogFlush._apply",
                "plan.disturbances == self._local.disturbances",
                "plan.end_offset >= 0",
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
                "LogFlush.end_truncation",
                "self.recovery_point = min(self.recovery_point, end_offset)",
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
        edits=(Edit(_FLUSH, "LogFlush._execute", "for segment in plan.segments: ..."),),
        tests=(f"{_UNIT}/test_recovery.py::test_what_was_flushed_survives_a_power_loss",),
    ),
    Mutant(
        name="a-torn-write-stays",
        rule="LOG-8",
        breaks="what a failed write left behind stays in the file",
        edits=(Edit(_LOG, "Log._write", "local.active.trim_file()"),),
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
                "Log.append_replicated",
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
                "Log._finish_truncation",
                "self._epochs.cache = self.epochs.truncate_from_end(end_offset)",
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
                "RecoveredEpochs.note",
                "0 <= header.leader_epoch < known",
                "header.leader_epoch < -1",
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
                "LogFlush._execute",
                "plan.epochs is not None",
                "plan.epochs is not None and plan.end_offset < 0",
            ),
        ),
        tests=(f"{_UNIT}/test_log_flush.py::test_a_flush_writes_indexes_epochs_and_snapshots",),
    ),
    # Producers
    Mutant(
        name="append-a-batch-that-came-again",
        rule="SEQ-2",
        breaks="a batch that is in the log already is appended once more",
        edits=(
            Edit(
                _SEQUENCES,
                "check_sequence",
                "return _require_duplicate(entry, header)",
                "_require_duplicate(entry, header)",
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
        edits=(Edit(_LOG, "Log._finish_truncation", "rebuild_producers", "lambda *_: None"),),
        tests=(
            f"{_UNIT}/test_log_retention.py::"
            "test_a_producer_whose_batches_were_truncated_is_what_it_was_before",
        ),
    ),
    # Deleting
    Mutant(
        name="delete-records-that-are-not-committed",
        rule="HW-1",
        breaks="DeleteRecords passes the high watermark",
        edits=(
            Edit(
                "moldau.replication.partition",
                "Partition.delete_records",
                "not 0 <= offset <= high_watermark",
                "offset < 0",
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
                "Segment.truncate_to",
                "self.unshare(self.size_bytes if boundary is None else boundary.position)",
            ),
        ),
        tests=(f"{_UNIT}/test_log_branch.py",),
    ),
    Mutant(
        name="branch-with-the-producers-of-its-origin",
        rule="BRA-2",
        breaks="a producer that writes to both topics is taken for one that repeats itself",
        edits=(Edit(_BRANCH, "_Branch.fill", "self._forget_producers(plan.end_offset)"),),
        tests=(f"{_UNIT}/test_log_branch.py",),
    ),
    Mutant(
        name="branch-leader-knows-the-producers-of-its-origin",
        rule="BRA-5",
        breaks="records of a producer that wrote to the origin are acknowledged and not appended",
        edits=(
            Edit(
                "moldau.replication.partition",
                "Partition.apply_state",
                "self._forget_producers_of_origin()",
            ),
        ),
        tests=("unit/replication/test_branches.py",),
    ),
    Mutant(
        name="branch-while-segments-change",
        rule="BRA-3",
        breaks="a branch is taken for whole although the log was changed under it",
        edits=(
            Edit(
                _BRANCH,
                "_build_branch",
                "is_even and is_same and (source.disturbances == disturbances)",
                "is_even",
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
                _RECOVERY,
                "_LogLoader._has_other_aborted",
                "index.digest != (expected or EMPTY_DIGEST)",
                "False",
            ),
        ),
        tests=(f"{_UNIT}/test_damaged_files.py",),
    ),
    Mutant(
        name="no-epochs-without-their-file",
        rule="REP-2",
        breaks="a log whose leader-epoch-checkpoint is gone knows of no epoch",
        edits=(Edit(_RECOVERED_EPOCHS, "RecoveredEpochs.finish", "self._is_lacking(segments)"),),
        tests=(f"{_UNIT}/test_damaged_files.py",),
    ),
    Mutant(
        name="cut-off-what-no-index-can-describe",
        rule="LOG-6",
        breaks="batches too far from their segment's base offset are damage wherever they are",
        edits=(Edit(_SEGMENT, "Segment.recover", "known_end", "0"),),
        tests=(f"{_UNIT}/test_segment_split.py",),
    ),
    Mutant(
        name="a-move-is-started-before-its-copy-is-there",
        rule="moves between log directories",
        breaks="one of several replicas that a request moves stays where it was",
        edits=(Edit("moldau.storage.log_moves", "LogMoves._start_due", "move.has_copy"),),
        tests=(f"{_UNIT}/test_log_moves.py::test_a_move_is_not_started_before_its_copy_is_there",),
    ),
    Mutant(
        name="a-move-that-is-called-off-is-started-again",
        rule="moves between log directories",
        breaks="a log has two copies that are under way",
        edits=(
            Edit(
                "moldau.storage.log_moves",
                "LogMoves._call_off",
                "self._moves.pop(key, None)",
                "self._moves.get(key)",
            ),
        ),
        tests=(f"{_UNIT}/test_log_moves.py::test_a_move_that_is_called_off_is_not_started_again",),
    ),
)
