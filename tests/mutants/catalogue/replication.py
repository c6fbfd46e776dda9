"""Leading: acknowledgements, the high watermark, the in-sync set, the lease."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_ACKNOWLEDGEMENT = "moldau.replication.rules.acknowledgement"
_PROGRESS = "moldau.replication.rules.follower_progress"
_HIGH_WATERMARK = "moldau.replication.rules.high_watermark"
_ISR = "moldau.replication.rules.isr"
_KEEPER = "moldau.replication.isr_keeper"
_LEADERSHIP = "moldau.replication.rules.leadership"
_PARTITION = "moldau.replication.partition"
_FOLLOWERS = "moldau.replication.followers"
_STATE = "moldau.replication.rules.replica_state"
_TRUNCATION = "moldau.replication.rules.truncation"
_RULES = "unit/replication/rules"
_UNIT = "unit/replication"

_TOO_FEW_AT_THE_END = Edit(
    _ACKNOWLEDGEMENT, "if smallest_isr_size < min_in_sync:", "if smallest_isr_size < 0:"
)
_TOO_FEW_AT_THE_BEGINNING = Edit(
    _STATE,
    "== ALL_IN_SYNC and self.smallest_isr_size < self.min_in_sync:",
    "== ALL_IN_SYNC and self.smallest_isr_size < 0:",
)
_COMMIT_BY_TOO_FEW = Edit(
    _LEADERSHIP,
    "return not self.state.elr and len(self.isr.smallest) >= min_in_sync",
    "return True",
)

_ANY_EPOCH = Edit(_ACKNOWLEDGEMENT, "if not leads_epoch:", "if end_offset < 0:")

_BEFORE_THE_EPOCHS_START = Edit(
    _ISR,
    "return progress.log_end_offset >= max(high_watermark, epoch_start_offset)",
    "return progress.log_end_offset >= high_watermark",
)
_WITHOUT_KEEPING_UP = Edit(_ISR, "        and keeps_up(known)\n", "")

MUTANTS = (
    # Acknowledgements
    Mutant(
        name="acknowledge-before-the-commit",
        rule="REP-3",
        breaks="a batch is acknowledged with acks=all before every in-sync replica has it",
        edits=(Edit(_ACKNOWLEDGEMENT, "if high_watermark < end_offset:", "if end_offset < 0:"),),
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
        name="acknowledge-what-too-few-have",
        rule="ISR-1",
        breaks="`min.insync.replicas` is not asked again when a batch is acknowledged",
        edits=(_TOO_FEW_AT_THE_END,),
        tests=(
            f"{_RULES}/test_acknowledgement.py::test_a_batch_that_too_few_have_is_no_success",
            f"{_UNIT}/test_followers.py::test_a_batch_committed_by_too_few_is_no_success",
        ),
    ),
    Mutant(
        name="append-with-too-few-in-sync",
        rule="ISR-1",
        breaks="`min.insync.replicas` is not asked before a batch is appended",
        edits=(_TOO_FEW_AT_THE_BEGINNING,),
        tests=(
            f"{_UNIT}/test_followers.py::test_writing_needs_the_smallest_set_that_may_be_in_force",
        ),
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
    Mutant(
        name="commit-behind-the-eligible",
        rule="ELR-1",
        breaks="the high watermark moves while somebody out of sync is promised to have everything",
        edits=(Edit(_LEADERSHIP, "return not self.state.elr and len(", "return len("),),
        tests=(
            f"{_UNIT}/test_followers.py::"
            "test_nothing_is_committed_behind_those_who_are_eligible_when_fewer_are_enough",
        ),
    ),
    # The high watermark
    Mutant(
        name="high-watermark-at-the-leaders-end",
        rule="HW-1",
        breaks="what the leader has written counts as committed",
        edits=(
            Edit(
                _HIGH_WATERMARK,
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
                "return committed if committed > current else current",
                "return committed",
            ),
        ),
        seeds=Seeds(count=5, by=("HW-1", "HW-2", "InvariantViolation")),
        tests=(
            f"{_RULES}/test_high_watermark.py::"
            "test_a_replica_that_is_behind_does_not_take_anything_back",
        ),
    ),
    Mutant(
        name="high-watermark-outside-of-the-log-not-raised",
        rule="HW-1",
        breaks="the one setter of the high watermark takes any offset",
        edits=(Edit(_STATE, "if not log_start <= offset <= log_end:", "if log_end < 0:"),),
        tests=(
            f"{_RULES}/test_replica_state.py::test_the_high_watermark_outside_of_the_log_is_raised",
        ),
    ),
    Mutant(
        name="high-watermark-that-goes-back-not-raised",
        rule="HW-2",
        breaks="the one setter of the high watermark lets a leader go back",
        edits=(Edit(_STATE, "if offset < former and self.is_leader:", "if offset < 0:"),),
        tests=(
            f"{_RULES}/test_replica_state.py::"
            "test_a_leader_whose_high_watermark_goes_back_is_raised",
        ),
    ),
    Mutant(
        name="high-watermark-past-a-followers-log",
        rule="HW-1",
        breaks="a follower believes the leader's high watermark where its own log does not reach",
        edits=(
            Edit(
                _HIGH_WATERMARK,
                "return max(current, Offset(min(leaders, log_end)))",
                "return max(current, Offset(leaders))",
            ),
        ),
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
                "return Offset(min(max(known, log_start), log_end))",
                "return Offset(max(known, log_start))",
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
        edits=(
            Edit(
                _ISR,
                """    out: tuple[BrokerId, ...]

    @property
    def largest(self) -> tuple[BrokerId, ...]:
        return self.isr
""",
                """    out: tuple[BrokerId, ...]

    @property
    def largest(self) -> tuple[BrokerId, ...]:
        return self.smallest
""",
            ),
        ),
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
        edits=(
            Edit(
                _LEADERSHIP,
                "            for broker in self.isr.largest\n",
                "            for broker in self.isr.isr\n",
            ),
        ),
        seeds=Seeds(
            count=10, story="a_leader_is_replaced_while_a_batch_waits", brokers=3, by=("REP-3",)
        ),
        tests=(
            f"{_UNIT}/test_followers.py::"
            "test_a_follower_that_may_be_in_holds_the_high_watermark_back",
        ),
    ),
    Mutant(
        name="count-who-is-proposed-to-leave",
        rule="ISR-1",
        breaks="`min.insync.replicas` counts followers that may have left",
        edits=(
            Edit(
                _ISR,
                "return tuple(broker for broker in self.isr if broker not in self.out)",
                "return self.isr",
            ),
        ),
        tests=(f"{_RULES}/test_isr.py::test_the_high_watermark_counts_those_who_may_still_be_in",),
    ),
    # The in-sync set
    Mutant(
        name="in-sync-before-the-high-watermark",
        rule="REP-3",
        breaks="a follower comes into the in-sync set without all that is committed",
        edits=(
            Edit(
                _ISR,
                "return progress.log_end_offset >= max(high_watermark, epoch_start_offset)",
                "return progress.log_end_offset >= epoch_start_offset",
            ),
        ),
        seeds=Seeds(by=("REP-3",)),
        tests=(f"{_RULES}/test_isr.py::test_a_follower_short_of_the_high_watermark_stays_out",),
    ),
    Mutant(
        name="in-sync-before-the-epochs-start",
        rule="REP-3",
        breaks="a follower comes in by a high watermark that a new leader has yet to learn",
        edits=(_BEFORE_THE_EPOCHS_START,),
        tests=(
            f"{_RULES}/test_isr.py::"
            "test_a_follower_that_has_not_reached_the_leaders_epoch_stays_out",
        ),
    ),
    Mutant(
        name="in-sync-without-keeping-up",
        rule="ELR-1",
        breaks="a follower comes in by a high watermark that stands still",
        edits=(_WITHOUT_KEEPING_UP,),
        tests=(f"{_RULES}/test_isr.py::test_a_follower_that_would_be_let_go_at_once_stays_out",),
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
        name="in-sync-for-what-it-was-before-its-restart",
        rule="ISR-2",
        breaks="a broker comes in for fetches of its former life, by the image",
        edits=(Edit(_ISR, "        and known.broker_epoch == broker_epoch_of(broker)\n", ""),),
        tests=(
            f"{_RULES}/test_isr.py::test_a_broker_that_was_restarted_since_its_fetch_stays_out",
        ),
    ),
    Mutant(
        name="in-sync-without-asking-the-store",
        rule="ISR-2",
        breaks="a broker that was restarted comes in while the image does not know of it",
        edits=(
            Edit(
                _KEEPER,
                "for one in proposals for broker in joining_brokers(one.planned)}\n",
                "for one in () for broker in joining_brokers(one.planned)}\n",
            ),
        ),
        tests=(
            f"{_UNIT}/test_isr_keeper.py::"
            "test_a_broker_that_the_store_knows_under_another_epoch_is_not_taken_in",
        ),
    ),
    Mutant(
        name="in-sync-for-ever",
        rule="REP-3",
        breaks="a follower that has fallen behind stays in the in-sync set",
        edits=(
            Edit(
                _PROGRESS,
                "return now - progress.caught_up_at <= max_lag_seconds",
                "return True",
            ),
        ),
        tests=(f"{_RULES}/test_isr.py::test_a_follower_that_lags_for_too_long_goes",),
    ),
    Mutant(
        name="two-proposals-at-a-time",
        rule="ISR-3",
        breaks="a second change of the set is planned while the first is not decided",
        edits=(
            Edit(
                _ISR,
                '''    """Let go of the followers that have not been caught up for too long."""
    if not isinstance(state, Committed):
        return None
''',
                "",
            ),
        ),
        tests=(f"{_RULES}/test_isr.py::test_one_proposal_at_a_time",),
    ),
    Mutant(
        name="withdraw-what-may-be-in-force",
        rule="ISR-3",
        breaks="a proposal is taken back though the store may hold it",
        edits=(
            Edit(
                "moldau.replication.rules.isr_proposals",
                "return state is not None and state.version == planned.former.version",
                "return True",
            ),
        ),
        tests=(
            f"{_UNIT}/test_isr_keeper.py::"
            "test_a_proposal_that_was_written_and_written_over_at_once_is_not_withdrawn",
            f"{_RULES}/test_isr_proposals.py::test_a_newer_state_may_be_the_proposal_itself",
        ),
    ),
    Mutant(
        name="write-states-over-anything",
        rule="ISR-3",
        breaks="a state is written whatever version the node has",
        edits=(
            Edit(
                "moldau.cluster.topic_operations",
                "return SetData(path=path, data=data, version=planned.former.version)",
                "return SetData(path=path, data=data)",
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
                "        if fetch.broker_epoch != broker_epoch:\n            return False\n",
                "        fetch = fetch._replace(broker_epoch=broker_epoch)\n",
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
        name="the-merit-of-a-former-life",
        rule="ISR-2",
        breaks="a follower that was restarted counts as caught up since before",
        edits=(
            Edit(
                _PROGRESS,
                "if progress.broker_epoch not in (-1, fetch.broker_epoch):",
                "if fetch.broker_epoch < -1:",
            ),
        ),
        tests=(
            f"{_RULES}/test_follower_progress.py::"
            "test_what_a_broker_was_before_its_restart_is_no_merit",
        ),
    ),
    Mutant(
        name="remember-followers-that-went",
        rule="ISR-2",
        breaks="what a follower's log held is believed after its broker went",
        edits=(Edit(_LEADERSHIP, "self.progress[follower] = forget_log(known)", "return"),),
        tests=(
            f"{_UNIT}/test_followers.py::"
            "test_what_is_known_of_a_follower_is_forgotten_when_its_broker_goes",
            f"{_UNIT}/test_followers.py::"
            "test_who_was_taken_out_has_to_fetch_again_before_it_comes_in",
        ),
    ),
    Mutant(
        name="serve-followers-of-other-epochs",
        rule="ISR-2",
        breaks="a follower's fetch counts under whatever leader epoch it names",
        edits=(Edit(_STATE, "        self.check_epoch(current_leader_epoch)\n", ""),),
        tests=(f"{_UNIT}/test_followers.py::test_a_fetch_under_another_leader_epoch_is_refused",),
    ),
    Mutant(
        name="never-find-where-histories-part",
        rule="REP-2",
        breaks="a fetch from another history is answered as if it were from this one",
        edits=(
            Edit(
                _TRUNCATION,
                "    if last_fetched_epoch < 0:\n        return None\n",
                "    if last_fetched_epoch < 1 << 40:\n        return None\n",
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
        edits=(Edit(_FOLLOWERS, "            if counts:\n", "            if counts or True:\n"),),
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
                "lease_end == math.inf or self._clock.monotonic() < lease_end\n",
                "lease_end > -math.inf\n",
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
                "        self._require_writable(required_acks)  "
                "# it may have changed while the worker was busy\n",
                "",
            ),
        ),
        tests=(
            f"{_UNIT}/test_partition.py::"
            "test_a_leader_that_ceases_while_a_worker_unpacks_a_batch_appends_nothing",
        ),
    ),
    Mutant(
        name="go-back-to-an-older-state",
        rule="REP-1",
        breaks="an older state makes a leader of whoever led in it",
        edits=(
            Edit(
                _STATE,
                "if state.version < self._version:",
                "if state.version < NO_NODE:",
            ),
        ),
        tests=(f"{_UNIT}/test_partition.py::test_an_older_state_changes_nothing",),
    ),
    Mutant(
        name="lead-on-under-a-former-lifes-epoch",
        rule="REP-1",
        breaks="a broker that was restarted leads under the epoch that it led in before",
        edits=(
            Edit(
                _STATE,
                "if state.leader != self.broker_id or state.leader_epoch <= self._refused_epoch:",
                "if state.leader != self.broker_id:",
            ),
        ),
        tests=(
            f"{_UNIT}/test_partition.py::test_a_former_lifes_epoch_is_not_led_again",
            f"{_UNIT}/test_partitions.py::"
            "test_what_a_former_life_led_is_led_again_under_a_new_epoch_only",
        ),
    ),
    Mutant(
        name="the-epochs-start-not-noted",
        rule="REP-2",
        breaks="a leader does not note where its epoch begins before it writes",
        edits=(
            Edit(_PARTITION, "            self.log.begin_epoch(state.leader_epoch)\n", ""),
            Edit(
                _PARTITION,
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
                "        if not self.state.is_settled:\n",
                "        if self.high_watermark < 0:\n",
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
                '        """Refuse records from now on, as for a leader that is about to go; '
                'reads go on."""\n        self.state.is_accepting = False\n',
                "        return\n",
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
                "else high_watermark\n        read: LogRead",
                "else log.log_end_offset\n        read: LogRead",
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
                "        check_size(len(batch), limits)\n        return CheckedBatch(batch",
                "        return CheckedBatch(batch",
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
            Edit(
                _PARTITION,
                "while the worker was busy\n        if verification != NOT_REQUIRED:\n",
                "while the worker was busy\n        if False:\n",
            ),
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
        edits=(
            Edit(
                _PARTITION,
                "        self._require_writable(ALL_IN_SYNC)\n        log, now_ms",
                "        self._require_writable(1)\n        log, now_ms",
            ),
        ),
        tests=(f"{_UNIT}/test_partition.py::test_a_marker_needs_as_many_in_sync_as_a_record",),
    ),
)
