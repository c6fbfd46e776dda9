"""Leading: acknowledgements, the high watermark, the in-sync set, the lease."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_ACKNOWLEDGEMENT = "moldau.replication.rules.replica"
_HIGH_WATERMARK = "moldau.replication.rules.replica"
_ISR = "moldau.replication.rules.isr"
_KEEPER = "moldau.replication.isr_keeper"
_LEADERSHIP = "moldau.replication.rules.replica"
_PARTITION = "moldau.replication.partition"
_STATE = "moldau.replication.rules.replica"
_TRUNCATION = "moldau.replication.rules.truncation"
_RULES = "unit/replication/rules"
_UNIT = "unit/replication"

_TOO_FEW_AT_THE_END = Edit(
    _ACKNOWLEDGEMENT,
    "decide_acknowledgement",
    "smallest_isr_size < min_in_sync",
    "smallest_isr_size < 0",
)
_TOO_FEW_AT_THE_BEGINNING = Edit(
    _STATE,
    "ReplicaState.require_writable",
    "self.smallest_isr_size < self.min_in_sync",
    "self.smallest_isr_size < 0",
)
_COMMIT_BY_TOO_FEW = Edit(
    _LEADERSHIP,
    "Leadership.may_commit",
    "not self.state.elr and len(self.isr.smallest) >= min_in_sync",
    "True",
)

_ANY_EPOCH = Edit(_ACKNOWLEDGEMENT, "decide_acknowledgement", "not leads_epoch", "end_offset < 0")

_BEFORE_THE_EPOCHS_START = Edit(
    _ISR, "has_caught_up", "max(high_watermark, epoch_start_offset)", "high_watermark"
)
_WITHOUT_KEEPING_UP = Edit(_ISR, "plan_expand", "keeps_up(known)")

MUTANTS = (
    # Acknowledgements
    Mutant(
        name="acknowledge-before-the-commit",
        rule="REP-3",
        breaks="a batch is acknowledged with acks=all before every in-sync replica has it",
        edits=(
            Edit(
                _ACKNOWLEDGEMENT,
                "decide_acknowledgement",
                "high_watermark < end_offset",
                "end_offset < 0",
            ),
        ),
        seeds=Seeds(kinds=("CRASH",), by=("REP-3",)),
        tests=(f"{_RULES}/test_acknowledgement.py",),
        is_sample=True,
    ),
    Mutant(
        name="acknowledge-in-a-later-epoch",
        rule="REP-3",
        breaks="a batch counts as committed though another leader's records are at its offsets",
        edits=(_ANY_EPOCH,),
        seeds=Seeds(story="a_leader_is_replaced_while_a_batch_waits", brokers=3, by=("REP-3",)),
        tests=(f"{_RULES}/test_acknowledgement.py::test_after_the_epoch_nothing_is_promised",),
    ),
    Mutant(
        name="acknowledge-as-a-follower",
        rule="REP-3",
        breaks="a batch counts as committed by its offset alone, whoever leads and is in sync",
        edits=(_ANY_EPOCH, _TOO_FEW_AT_THE_END),
        seeds=Seeds(story="a_leader_is_replaced_while_a_batch_waits", brokers=3, by=("REP-3",)),
    ),
    Mutant(
        name="min-in-sync-replicas-ignored",
        rule="ISR-1",
        breaks="`min.insync.replicas` is asked nowhere",
        edits=(_TOO_FEW_AT_THE_BEGINNING, _TOO_FEW_AT_THE_END, _COMMIT_BY_TOO_FEW),
        seeds=Seeds(count=10, story="one_replica_is_left", brokers=3, by=("ISR-1",)),
    ),
    # Eligible leaders
    Mutant(
        name="commit-by-too-few",
        rule="ELR-1",
        breaks="the high watermark moves while too few are in sync",
        edits=(_COMMIT_BY_TOO_FEW,),
        seeds=Seeds(
            story="one_is_killed_and_the_last_one_loses_power", brokers=3, by=("REP-3", "ELR-1")
        ),
        tests=(f"{_UNIT}/test_followers.py::test_nothing_is_committed_while_too_few_are_in_sync",),
    ),
    # The high watermark
    Mutant(
        name="high-watermark-at-the-leaders-end",
        rule="HW-1",
        breaks="what the leader has written counts as committed",
        edits=(
            Edit(
                _HIGH_WATERMARK,
                "advance_high_watermark",
                "min(leader_end, *in_sync_ends) if in_sync_ends else leader_end",
                "leader_end",
            ),
        ),
        seeds=Seeds(kinds=("CRASH",), by=("REP-3", "HW-3")),
        tests=(f"{_RULES}/test_high_watermark.py::test_the_slowest_in_sync_replica_decides",),
    ),
    Mutant(
        name="high-watermark-goes-back",
        rule="HW-2",
        breaks="a leader takes back what it has called committed",
        edits=(
            Edit(
                _HIGH_WATERMARK,
                "advance_high_watermark",
                "committed if committed > current else current",
                "committed",
            ),
        ),
        seeds=Seeds(count=5, by=("HW-1", "HW-2", "InvariantViolation")),
        tests=(
            f"{_RULES}/test_high_watermark.py::"
            "test_a_replica_that_is_behind_does_not_take_anything_back",
        ),
    ),
    Mutant(
        name="high-watermark-past-a-followers-log",
        rule="HW-1",
        breaks="a follower believes the leader's high watermark where its own log does not reach",
        edits=(Edit(_HIGH_WATERMARK, "follow_high_watermark", "min(leaders, log_end)", "leaders"),),
        seeds=Seeds(
            count=10,
            story="a_follower_is_slow_to_catch_up",
            brokers=3,
            options=(
                ("replica.fetch.max.bytes", "150"),
                ("replica.fetch.response.max.bytes", "150"),
            ),
            by=("HW-1", "InvariantViolation"),
        ),
        tests=(f"{_RULES}/test_high_watermark.py::test_a_follower_goes_as_far_as_its_log_reaches",),
    ),
    Mutant(
        name="high-watermark-past-a-truncated-log",
        rule="HW-1",
        breaks="after a truncation the high watermark is behind the log's end",
        edits=(
            Edit(
                _HIGH_WATERMARK,
                "restored_high_watermark",
                "min(max(known, log_start), log_end)",
                "max(known, log_start)",
            ),
        ),
        seeds=Seeds(
            count=5,
            story="a_follower_loses_power_while_its_fetch_is_under_way",
            brokers=3,
            by=("HW-1", "InvariantViolation"),
        ),
        tests=(
            f"{_RULES}/test_high_watermark.py::test_what_was_written_down_is_kept_within_the_log",
        ),
    ),
    Mutant(
        name="count-the-smaller-set-while-it-is-proposed",
        rule="ISR-1",
        breaks="the high watermark passes followers whose leaving is not written yet",
        edits=(Edit(_ISR, "PendingShrink.largest", "self.isr", "self.smallest"),),
        seeds=Seeds(
            story="a_follower_is_to_leave_and_nobody_can_write_it", brokers=3, by=("REP-3",)
        ),
        tests=(f"{_RULES}/test_isr.py::test_the_high_watermark_counts_those_who_may_still_be_in",),
        is_sample=True,
    ),
    Mutant(
        name="do-not-count-who-may-have-come-in",
        rule="ISR-1",
        breaks="the high watermark passes a follower that the store may have taken in",
        edits=(Edit(_LEADERSHIP, "Leadership.in_sync_ends", "self.isr.largest", "self.isr.isr"),),
        seeds=Seeds(
            count=10, story="a_leader_is_replaced_while_a_batch_waits", brokers=3, by=("REP-3",)
        ),
        tests=(
            f"{_UNIT}/test_followers.py::"
            "test_a_follower_that_may_be_in_holds_the_high_watermark_back",
        ),
    ),
    # The in-sync set
    Mutant(
        name="in-sync-before-the-high-watermark",
        rule="REP-3",
        breaks="a follower comes into the in-sync set without all that is committed",
        edits=(
            Edit(
                _ISR,
                "has_caught_up",
                "max(high_watermark, epoch_start_offset)",
                "epoch_start_offset",
            ),
        ),
        seeds=Seeds(by=("REP-3",)),
        tests=(f"{_RULES}/test_isr.py::test_a_follower_short_of_the_high_watermark_stays_out",),
    ),
    Mutant(
        name="in-sync-by-an-old-high-watermark",
        rule="REP-3",
        breaks="a follower comes in by the high watermark alone, whoever leads and keeps up",
        edits=(_BEFORE_THE_EPOCHS_START, _WITHOUT_KEEPING_UP),
        seeds=Seeds(
            count=10, story="a_leader_knows_less_than_was_promised", brokers=3, by=("REP-3",)
        ),
    ),
    Mutant(
        name="in-sync-without-asking-the-store",
        rule="ISR-2",
        breaks="a broker that was restarted comes in while the image does not know of it",
        edits=(
            Edit(
                _KEEPER,
                "IsrKeeper._without_restarted",
                "{broker for one in proposals for broker in joining_brokers(one.planned)}",
                "{broker for one in () for broker in joining_brokers(one.planned)}",
            ),
        ),
        tests=(
            f"{_UNIT}/test_isr_keeper.py::"
            "test_a_broker_that_the_store_knows_under_another_epoch_is_not_taken_in",
        ),
    ),
    Mutant(
        name="write-states-over-anything",
        rule="ISR-3",
        breaks="a state is written whatever version the node has",
        edits=(
            Edit(
                "moldau.cluster.topic_operations", "write_state", "version=planned.former.version"
            ),
        ),
        seeds=Seeds(),
    ),
    # Followers' fetches
    Mutant(
        name="believe-a-fetch-from-before-a-restart",
        rule="ISR-2",
        breaks="a fetch counts whatever the epoch of the follower's broker is",
        edits=(
            Edit(
                _LEADERSHIP,
                "Leadership.note_fetch",
                "if fetch.broker_epoch != broker_epoch: ...",
                "fetch = fetch._replace(broker_epoch=broker_epoch)",
            ),
        ),
        seeds=Seeds(
            story="a_follower_loses_power_while_its_fetch_is_under_way", brokers=3, by=("REP-3",)
        ),
        tests=(
            f"{_UNIT}/test_followers.py::"
            "test_a_fetch_of_a_broker_from_before_its_restart_does_not_count",
        ),
        is_sample=True,
    ),
    Mutant(
        name="never-find-where-histories-part",
        rule="REP-2",
        breaks="a fetch from another history is answered as if it were from this one",
        edits=(
            Edit(
                _TRUNCATION,
                "find_divergence",
                "last_fetched_epoch < 0",
                "last_fetched_epoch < 1 << 40",
            ),
        ),
        seeds=Seeds(story="two_elections_before_anybody_writes", brokers=3),
        tests=(
            f"{_UNIT}/test_followers.py::"
            "test_a_fetch_from_another_history_does_not_count_and_says_where_it_parts",
        ),
    ),
    Mutant(
        name="count-a-fetch-that-looks-again",
        rule="ISR-2",
        breaks="a fetch that waited counts anew, under whatever epoch is in force by then",
        edits=(
            Edit(
                _PARTITION,
                "Partition.read_for_follower",
                "if counts: ...",
                "if counts or True: ...",
            ),
        ),
        tests=(
            f"{_UNIT}/test_followers.py::"
            "test_a_fetch_that_looks_again_while_it_waits_does_not_count",
        ),
    ),
    # Leading
    Mutant(
        name="lead-without-a-session",
        rule="REP-4",
        breaks="a leader appends after the end of its lease",
        edits=(
            Edit(
                _PARTITION,
                "Partition._require_writable",
                "lease_end == math.inf or self._clock.monotonic() < lease_end",
                "lease_end > -math.inf",
            ),
        ),
        seeds=Seeds(kinds=("PAUSE", "CUT_COORDINATION", "CUT_COORDINATION_ONE_WAY"), by=("REP-4",)),
        tests=(f"{_UNIT}/test_partition.py::test_nobody_appends_after_the_end_of_its_lease",),
        is_sample=True,
    ),
    Mutant(
        name="append-what-a-worker-unpacked-without-a-second-look",
        rule="REP-4",
        breaks="a broker that ceased to lead while a worker unpacked a batch appends the batch",
        edits=(
            Edit(
                _PARTITION,
                "Partition.append_in_worker",
                "self._require_writable(required_acks)\nif verification != NOT_REQUIRED: ...",
                "if verification != NOT_REQUIRED: ...",
            ),
        ),
        tests=(
            f"{_UNIT}/test_partition.py::"
            "test_a_leader_that_ceases_while_a_worker_unpacks_a_batch_appends_nothing",
        ),
    ),
    Mutant(
        name="the-epochs-start-not-noted",
        rule="REP-2",
        breaks="a leader does not note where its epoch begins before it writes",
        edits=(
            Edit(_PARTITION, "Partition.apply_state", "self.log.begin_epoch(state.leader_epoch)"),
            Edit(
                _PARTITION,
                "Partition.apply_state",
                "Offset(self.log.epochs.entries[-1].start_offset)",
                "self.log.log_end_offset",
            ),
        ),
        seeds=Seeds(story="two_elections_before_anybody_writes", brokers=3),
    ),
    Mutant(
        name="say-where-the-log-ends-before-it-is-known",
        rule="HW-3",
        breaks="a new leader answers with a high watermark that is behind what clients have seen",
        edits=(
            Edit(
                _PARTITION,
                "Partition._require_settled",
                "not self.state.is_settled",
                "self.high_watermark < 0",
            ),
        ),
        tests=(
            f"{_UNIT}/test_partition.py::"
            "test_a_new_leader_does_not_say_where_the_log_ends_before_it_knows",
        ),
    ),
    Mutant(
        name="take-records-while-handing-over",
        rule="REP-4",
        breaks="a leader that is about to go takes records on",
        edits=(
            Edit(
                _PARTITION,
                "Partition",
                "def stop_accepting(self) -> None: ...",
                "def stop_accepting(self) -> None:\n    return",
            ),
        ),
        tests=(
            f"{_UNIT}/test_partition.py::"
            "test_a_leader_that_hands_over_takes_no_records_and_is_still_read_from",
        ),
    ),
    Mutant(
        name="show-what-is-not-committed",
        rule="HW-3",
        breaks="consumers read past the high watermark",
        edits=(
            Edit(
                _PARTITION,
                "Partition.read",
                "last_stable_offset if read_committed else high_watermark",
                "last_stable_offset if read_committed else log.log_end_offset",
            ),
        ),
        seeds=Seeds(kinds=("CRASH", "CUT", "PAUSE")),
        is_sample=True,
    ),
    Mutant(
        name="a-batch-that-recompression-makes-too-large-is-appended",
        rule="max.message.bytes",
        breaks="a batch that the broker recompressed may be larger than max.message.bytes",
        edits=(
            Edit(
                "moldau.replication.incoming_batches",
                "IncomingBatches.check_in_worker",
                "check_size(len(batch), limits)",
            ),
        ),
        tests=(
            f"{_UNIT}/test_partition.py"
            "::test_a_batch_that_recompression_makes_too_large_is_refused",
        ),
    ),
    Mutant(
        name="a-worker-unpacks-what-no-transaction-covers",
        rule="TXP-2",
        breaks="a transactional batch that a worker unpacked is appended without its transaction",
        edits=(
            Edit(_PARTITION, "Partition.append_in_worker", "verification != NOT_REQUIRED", "False"),
        ),
        tests=(
            f"{_UNIT}/test_partition.py"
            "::test_a_transactional_batch_that_a_worker_unpacks_needs_its_transaction",
        ),
    ),
    Mutant(
        name="a-marker-with-too-few-in-sync",
        rule="TXP-3",
        breaks="a marker is appended while fewer than min.insync.replicas are in sync",
        edits=(Edit(_PARTITION, "Partition.append_marker", "ALL_IN_SYNC", "1"),),
        tests=(f"{_UNIT}/test_partition.py::test_a_marker_needs_as_many_in_sync_as_a_record",),
    ),
)
