"""Following and holding: truncation, copying, sessions that end, what is opened and dropped."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_PARTITION = "moldau.replication.partition"
_PARTITIONS = "moldau.replication.partitions"
_IMAGES = "moldau.replication.metadata_apply_queue"
_GOING_BACK = "moldau.replication.replica_fetcher"
_TRUNCATION = "moldau.replication.rules.truncation"
_BATCHES = "moldau.storage.rules.log_validator"
_UNIT = "unit/replication"

_LEAD_ON = Edit(_PARTITIONS, "Partitions.suspend", "partition.suspend()")
_NO_LEASE = Edit(
    _PARTITION,
    "Partition._require_writable",
    "lease_end == math.inf or self._clock.monotonic() < lease_end",
    "True",
)
_NOTHING_IS_OBSOLETE = Edit(
    _IMAGES, "MetadataApplyQueue.is_obsolete", "image.version < self._resumed_version", "False"
)
_APPLY_WHILE_LOST = Edit(_IMAGES, "MetadataApplyQueue.decides", "self._is_suspended")
_APPLY_WHAT_WAITED = Edit(_IMAGES, "MetadataApplyQueue.suspend", "self.forget_waiting()")

_OPENING = "unit/replication/test_partitions.py"

MUTANTS = (
    Mutant(
        name="the-logs-of-an-image-are-made-one-after-the-other",
        rule="opening",
        breaks="a topic of a hundred partitions waits for three hundred syncs in a row",
        edits=(
            Edit("moldau.replication.replica_logs", "ReplicaLogs._create", "MADE_AT_ONCE - 1", "0"),
        ),
        tests=(f"{_OPENING}::test_the_logs_of_an_image_are_made_together",),
    ),
    Mutant(
        name="logs-that-are-made-are-not-counted",
        rule="opening",
        breaks="all logs that are made at the same time are put into one directory",
        edits=(
            Edit(
                "moldau.storage.log_table",
                "LogTable.count_logs",
                "directory.log_count + sum((one is directory for one in self._made.values()))",
                "directory.log_count",
            ),
        ),
        tests=(f"{_OPENING}::test_the_logs_of_an_image_are_made_together",),
    ),
    Mutant(
        name="a-log-on-a-disk-that-failed-meanwhile-is-served",
        rule="opening",
        breaks="a log is opened whose directory failed while another log was made",
        edits=(
            Edit(
                "moldau.replication.replica_logs",
                "ReplicaLogs._create",
                "outcome.directory.require_online()",
                "outcome.directory",
            ),
        ),
        tests=(f"{_OPENING}::test_a_disk_that_fails_while_logs_are_made",),
    ),
    Mutant(
        name="truncate-to-the-high-watermark",
        rule="REP-3",
        breaks="a follower of a new leader throws away what may be the last copies",
        edits=(
            Edit(
                _PARTITION,
                "Partition.apply_state",
                "self._stop_waiting()",
                "self._stop_waiting()\n"
                "if self.is_following:\n"
                "    self.truncate_to(self.high_watermark)",
            ),
        ),
        seeds=Seeds(kinds=("CRASH", "STOP", "EXPIRE"), by=("REP-3",)),
        is_sample=True,
    ),
    Mutant(
        name="truncate-by-the-leaders-word-alone",
        rule="REP-2",
        breaks="a follower keeps what lies behind its own end of the epoch in common",
        edits=(Edit(_TRUNCATION, "decide_truncation", "own_end_offset"),),
        seeds=Seeds(story="two_elections_before_anybody_writes", brokers=3),
        tests=(
            f"{_UNIT}/rules/test_truncation.py::"
            "test_the_leader_has_more_of_an_epoch_that_we_left_earlier",
            f"{_UNIT}/rules/test_truncation.py::"
            "test_the_logs_meet_at_the_end_of_what_they_have_in_common",
        ),
    ),
    Mutant(
        name="never-truncate",
        rule="REP-2",
        breaks="a follower whose history parts from its leader's keeps it",
        edits=(
            Edit(
                _GOING_BACK,
                "FollowerTruncation._truncate",
                "partition.truncate_to(offset)",
                "pass",
            ),
        ),
        seeds=Seeds(kinds=("CRASH", "PAUSE", "ISOLATE")),
        tests=(
            f"{_UNIT}/test_follower_truncation.py::"
            "test_a_former_leader_goes_back_to_where_its_history_parts",
        ),
    ),
    Mutant(
        name="the-checkpoint-before-a-truncation-not-written",
        rule="LOG-9",
        breaks="a follower goes back behind a recovery point that is in the checkpoint still",
        edits=(
            Edit(
                "moldau.storage.checkpoints",
                "Checkpoints.prepare_truncation",
                "await self.write(log.directory)",
            ),
        ),
        tests=(
            "unit/storage/test_power_loss.py::"
            "test_a_settled_truncation_is_on_disk_with_its_checkpoints",
        ),
    ),
    Mutant(
        name="a-truncation-not-brought-to-the-disk",
        rule="LOG-9",
        breaks="a power loss brings back what a truncation took away, among what came after it",
        edits=(
            Edit(
                "moldau.storage.checkpoints",
                "Checkpoints.complete_truncation",
                "await flushing.flush_truncation()",
            ),
        ),
        tests=(
            "unit/storage/test_power_loss.py::"
            "test_a_settled_truncation_is_on_disk_with_its_checkpoints",
        ),
    ),
    Mutant(
        name="lead-before-a-truncation-is-written-down",
        rule="LOG-7",
        breaks="a follower becomes the leader while its checkpoints speak of the former log",
        edits=(
            Edit(
                _PARTITIONS, "Partitions._apply_partition", "partition.truncating", "asyncio.Lock()"
            ),
        ),
        tests=(
            f"{_UNIT}/test_partitions.py::test_nobody_leads_before_a_truncation_is_written_down",
        ),
    ),
    Mutant(
        name="use-an-answer-of-a-former-epoch",
        rule="REP-5",
        breaks="a follower appends what a former leader has sent",
        edits=(Edit(_PARTITION, "Partition.is_at", "position.leader_epoch == state.leader_epoch"),),
        tests=(
            f"{_UNIT}/test_replica_fetcher.py::"
            "test_an_answer_of_a_former_leader_is_not_used_under_the_next_one",
        ),
    ),
    Mutant(
        name="use-an-answer-for-another-offset",
        rule="REP-5",
        breaks="a follower uses an answer though its log has moved meanwhile",
        edits=(Edit(_PARTITION, "Partition.is_at", "position.offset == self.log.log_end_offset"),),
        seeds=Seeds(count=8),
        redundant=(
            "what was sent must begin at the log's end in any case (copy-what-overlaps), and an "
            "answer with nothing in it moves the high watermark as far as the log reaches only"
        ),
    ),
    Mutant(
        name="copy-without-crc",
        rule="REP-5",
        breaks="a follower writes what it was sent, damaged or not",
        edits=(Edit(_BATCHES, "check_replicated", "not crc_matches(batch, header)"),),
        tests=(
            "unit/storage/test_log_append.py::"
            "test_a_damaged_batch_among_good_ones_is_refused_with_all_of_them",
            f"{_UNIT}/test_replica_fetcher.py::"
            "test_nothing_is_written_that_is_damaged_and_the_leader_hears_of_it",
        ),
    ),
    Mutant(
        name="copy-what-overlaps",
        rule="REP-5",
        breaks="a follower writes a batch whose offsets its log has already",
        edits=(Edit(_BATCHES, "check_replicated", "header.base_offset < next_offset"),),
        tests=("unit/storage/test_log_append.py::test_a_batch_that_overlaps_the_log_is_refused",),
    ),
    Mutant(
        name="copy-from-a-leader-what-it-copied-itself",
        rule="REP-5",
        breaks="a follower takes batches of a later epoch than its leader's",
        edits=(
            Edit(
                _BATCHES,
                "check_replicated",
                "header.leader_epoch > newest_epoch",
                "newest_epoch < -1",
            ),
        ),
        tests=(
            f"{_UNIT}/test_replica_fetcher.py::"
            "test_what_a_former_leader_copied_itself_is_not_taken_from_it",
        ),
    ),
    Mutant(
        name="pass-the-leaders-start-with-ones-own",
        rule="HW-1",
        breaks="a follower deletes records that it does not know to be committed",
        edits=(
            Edit(
                _PARTITION,
                "Partition.apply_leader_offsets",
                "min(log_start_offset, state.high_watermark)",
                "min(log_start_offset, log.log_end_offset)",
            ),
        ),
        tests=(f"{_UNIT}/test_partition.py::test_what_is_not_committed_is_not_deleted",),
    ),
    # Sessions and images
    Mutant(
        name="lead-on-when-the-session-is-lost",
        rule="REP-4",
        breaks="partitions stay as they were when the session ends, and are not taken up again",
        edits=(_LEAD_ON,),
        tests=(
            f"{_UNIT}/test_partitions.py::"
            "test_nothing_is_led_when_the_session_ends_and_what_is_still_in_force_is_taken_up_again",
        ),
    ),
    Mutant(
        name="lead-on-without-a-session-or-a-lease",
        rule="REP-4",
        breaks="a leader looks neither at the end of its session nor at that of its lease",
        # Who is cut off goes on without a session for as long as it lasts; one that is told of its
        # end has the next within milliseconds.
        edits=(_LEAD_ON, _NO_LEASE),
        seeds=Seeds(kinds=("CUT_COORDINATION",), by=("REP-4",)),
    ),
    Mutant(
        name="apply-an-image-of-a-former-session",
        rule="REP-1",
        breaks="an image that was read before the session was lost makes a leader after it",
        edits=(_NOTHING_IS_OBSOLETE,),
        tests=(
            f"{_UNIT}/test_partitions.py::"
            "test_an_image_of_a_former_session_makes_no_leader_in_the_next_one",
        ),
    ),
    Mutant(
        name="apply-what-waited-when-the-session-ended",
        rule="REP-1",
        breaks="images that wait when the session ends stay in the queue",
        edits=(_APPLY_WHAT_WAITED,),
        seeds=Seeds(count=6, kinds=("EXPIRE", "PAUSE")),
        redundant=(
            "nothing is applied while the session is lost (apply-while-the-session-is-lost), and "
            "what was read before is obsolete afterwards (apply-an-image-of-a-former-session)"
        ),
        caught_with="apply-what-waited-while-the-session-is-lost",
    ),
    Mutant(
        name="apply-while-the-session-is-lost",
        rule="REP-1",
        breaks="an image that is being applied when the session ends makes a leader",
        edits=(_APPLY_WHILE_LOST,),
        tests=(
            f"{_UNIT}/test_partitions.py::"
            "test_an_image_that_is_being_applied_when_the_session_ends_makes_no_leader",
        ),
    ),
    Mutant(
        name="apply-what-waited-while-the-session-is-lost",
        rule="REP-1",
        breaks="images that wait when the session ends are applied, and make leaders",
        edits=(_APPLY_WHAT_WAITED, _APPLY_WHILE_LOST),
        tests=(
            f"{_UNIT}/test_partitions.py::"
            "test_images_that_wait_when_the_session_ends_are_not_applied",
        ),
    ),
    Mutant(
        name="serve-a-topic-that-has-gone",
        rule="REP-3",
        breaks="a topic is served under a name that clients were told is another topic's",
        edits=(
            Edit(
                _PARTITIONS,
                "Partitions.on_image",
                "self._images.has_gone(key.topic, partition.topic_id)",
                "key.topic in ()",
            ),
        ),
        tests=(
            f"{_UNIT}/test_partitions.py::test_a_topic_that_has_gone_is_not_served_from_the_moment_"
            "in_which_clients_hear_of_it",
        ),
    ),
    Mutant(
        name="remember-the-logs-of-restarted-brokers",
        rule="ISR-2",
        breaks="what a follower's log held is believed when its broker has another epoch",
        edits=(
            Edit(
                _PARTITIONS,
                "Partitions._forget_restarted",
                "partition.state.forget_follower(broker_id)",
                "continue",
            ),
        ),
        tests=(
            f"{_UNIT}/test_partitions.py::test_the_log_of_a_broker_that_was_restarted_is_unknown",
        ),
    ),
    Mutant(
        name="begin-anew-what-may-be-on-a-dead-disk",
        rule="REP-6",
        breaks="an empty log takes the place of one on a disk that cannot be read",
        edits=(
            Edit(
                "moldau.replication.replica_logs",
                "ReplicaLogs._make",
                "self.may_be_new and self.offline.get(key) != topic.topic_id",
                "True",
            ),
        ),
        tests=(
            f"{_UNIT}/test_partitions.py::"
            "test_a_log_that_may_be_on_a_dead_disk_is_not_begun_anew_elsewhere",
        ),
    ),
    Mutant(
        name="logs-that-were-made-ahead-stay",
        rule="opening",
        breaks="logs of a topic that was deleted while they were made stay on the disk",
        edits=(
            Edit(
                "moldau.replication.partitions",
                "Partitions.apply",
                "await self._logs.settle_unopened(image)",
                "pass",
            ),
        ),
        tests=(
            f"{_OPENING}::test_logs_that_are_made_when_the_session_ends_go_if_they_do_not_belong_"
            "here_in_the_next[deleted]",
        ),
    ),
)
