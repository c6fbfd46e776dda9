"""Logs on disk: recovery, flushing, truncation, epochs, producers, what may be deleted."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_LOG = "moldau.storage.log"
_FLUSH = "moldau.storage.log_flush"
_RECOVERY = "moldau.storage.recovery"
_PLAN = "moldau.storage.rules.recovery_plan"
_STORE = "moldau.storage.log_store"
_CLEANING = "moldau.storage.rules.cleaning_plan"
_DIRECTORY = "moldau.storage.log_directory"
_COMPACTION = "moldau.storage.rules.compaction"
_RETENTION = "moldau.storage.rules.retention"
_SCAN = "moldau.storage.batch_scan"
_EPOCHS = "moldau.storage.rules.epoch_cache"
_SEGMENT = "moldau.storage.segment"
_SEQUENCES = "moldau.storage.rules.producer_sequences"
_UNIT = "unit/storage"

MUTANTS = (
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
                "return self._offsets.get(_shorten(record.key), -1) <= record.offset",
                "return self._offsets.get(_shorten(record.key), -1) < record.offset",
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
        name="the-marker-of-a-clean-stop-stays",
        rule="LOG-6",
        breaks="the marker of a clean stop vouches for a later crash",
        edits=(
            Edit(
                "moldau.storage.directory_loader",
                "        files.remove(marker)\n        files.sync_folder(folder)\n",
                "        pass\n",
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
                "moldau.storage.directory_loader",
                "        files.remove(marker)\n        files.sync_folder(folder)\n",
                "        files.remove(marker)\n",
            ),
        ),
        tests=(f"{_UNIT}/test_log_store.py::test_the_marker_does_not_come_back_with_a_power_loss",),
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
                _RECOVERY,
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
)
