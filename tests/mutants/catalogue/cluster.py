"""Elections, departures, moves, the controller's term, and coming back into the cluster."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_ELECTION = "moldau.cluster.rules.leader_election"
_ELIGIBLE = "moldau.cluster.rules.leader_election"
_RECOVERY = "moldau.cluster.rules.leader_election"
_DEPARTURE = "moldau.cluster.rules.broker_shutdown"
_REASSIGNMENT = "moldau.cluster.rules.reassignment"
_CONTROLLERSHIP = "moldau.cluster.controller_election"
_WRITER = "moldau.cluster.state_writer"
_MEMBERSHIP = "moldau.broker.lifecycle"
_MISSING = "moldau.broker.missing_log_dirs"
_ENCODED = "moldau.broker.topic_metadata"
_ADMIN = "moldau.cluster.cluster_admin"
_AWAY = "unit/broker/test_away_brokers.py"
_RULES = "unit/cluster/rules"
_UNIT = "unit/cluster"

_NO_NEW_EPOCH = Edit(
    _DEPARTURE, "_with_new_epoch", "state.leader == broker", "state.leader == broker < 0"
)

_MOVE_UNDER_THE_SAME_EPOCH = Edit(
    _REASSIGNMENT, "_with_epoch", "set(changed.replicas) == set(former.replicas)"
)
_PUBLISH_WHAT_WAS_WRITTEN_OVER = Edit(
    _WRITER, "_with_states", "present.version >= _next_version(planned)", "present.version < -1"
)
_PUBLISH_WHAT_WAS_READ_EARLIER = Edit(
    "moldau.cluster.rules.metadata_image",
    "_newest_partition",
    "newer if older is None or _order_of(older) <= _order_of(newer) else older",
    "newer",
)

MUTANTS = (
    # Timeouts of requests
    Mutant(
        name="a-change-of-topics-has-no-timeout",
        rule="request timeout",
        breaks="a client waits for a change of topics for as long as the store takes",
        edits=(
            Edit(
                "moldau.broker.api",
                "Services.change_topics",
                "seconds if seconds > 0 else _APPLIED_WITHIN_SECONDS",
                "3600.0",
            ),
        ),
        tests=("unit/broker/test_late_replicas.py",),
    ),
    Mutant(
        name="a-timeout-of-zero-waits",
        rule="request timeout",
        breaks="a request that shall only start a change is answered as if it had waited",
        edits=(
            Edit(
                "moldau.broker.api",
                "late_topics",
                "timeout_ms <= 0 or not services.is_led(name)",
                "not services.is_led(name)",
            ),
        ),
        tests=("unit/broker/handlers/test_topic_handlers.py",),
    ),
    # Brokers that are away
    Mutant(
        name="brokers-that-are-away-do-not-count",
        rule="placement",
        breaks="no topic with three replicas is created while one of three brokers is restarted",
        edits=(
            Edit(
                _ADMIN,
                "ClusterAdmin._with_enough_brokers",
                "_racks(await self._publisher.read_away_brokers())",
                "()",
            ),
        ),
        tests=(_AWAY,),
    ),
    Mutant(
        name="a-broker-that-registers-is-unregistered",
        rule="placement",
        breaks="a broker that comes back while it is unregistered is alive and not registered",
        edits=(Edit("moldau.cluster.broker_registration", "unregister_broker", "note.version"),),
        tests=(f"{_UNIT}/test_broker_registration.py",),
    ),
    # Elections
    Mutant(
        name="elect-whoever-lives",
        rule="CTL-2",
        breaks="a replica that is neither in sync nor eligible leads",
        edits=(
            Edit(
                _ELECTION,
                "elect_leader",
                "broker in eligible and broker in alive",
                "broker in alive",
            ),
        ),
        seeds=Seeds(count=10, story="everybody_in_sync_is_away", brokers=3),
        tests=(
            f"{_RULES}/test_leader_election.py::test_nobody_leads_when_no_replica_in_sync_is_alive",
        ),
    ),
    Mutant(
        name="elect-under-the-same-epoch",
        rule="REP-1",
        breaks="an election does not raise the leader epoch",
        edits=(
            Edit(
                _ELECTION,
                "decide_partition_state",
                "with_leader(changed, election.leader)",
                "replace(changed, leader=election.leader)",
            ),
        ),
        seeds=Seeds(count=5, kinds=("CRASH", "POWER_LOSS"), by=("InvariantViolation", "REP-1")),
        tests=(
            f"{_RULES}/test_leader_election.py::test_a_dead_leader_is_replaced_under_a_new_epoch",
        ),
        is_sample=True,
    ),
    # Eligible leaders and recovery
    Mutant(
        name="eligible-with-a-hole",
        rule="ELR-3",
        breaks="a replica that comes back with a hole stays eligible",
        edits=(Edit(_ELIGIBLE, "with_in_sync", "{*isr, *holed}", "{*isr}"),),
        seeds=Seeds(
            story="one_is_killed_and_the_last_one_loses_power", brokers=3, by=("REP-3", "REP-6")
        ),
        tests=(
            f"{_RULES}/test_eligible_leaders.py::"
            "test_whoever_is_in_sync_or_eligible_has_all_that_was_committed",
            f"{_UNIT}/test_log_recovery.py::"
            "test_who_comes_back_with_a_hole_is_not_eligible_any_more",
        ),
    ),
    Mutant(
        name="forget-who-said-so-first",
        rule="ELR-4",
        breaks="those who told of their holes while others were in sync are not waited for",
        edits=(
            Edit(
                _ELIGIBLE,
                "with_in_sync",
                "_replicas_of(state, _ordered(last_known), {*isr, *elr})",
                "_replicas_of(state, _ordered(last_known), {*isr, *elr}) if is_short else ()",
            ),
        ),
        seeds=Seeds(story="all_machines_lose_power", count=12, brokers=3, by=("REP-3",)),
        tests=(
            f"{_UNIT}/test_log_recovery.py::test_balanced_waits_for_all_and_elects_the_best_log",
        ),
    ),
    Mutant(
        name="balanced-does-not-wait",
        rule="ELR-4",
        breaks="balanced takes the first log that is there",
        edits=(
            Edit(_RECOVERY, "find_recovery_candidates", "all", "any"),
            Edit(
                _RECOVERY,
                "recover_leader",
                "strategy is RecoveryStrategy.BALANCED and (not _are_enough(state, ends))",
                "not ends",
            ),
        ),
        seeds=Seeds(story="all_machines_lose_power", count=12, brokers=3, by=("REP-3",)),
        tests=(
            f"{_RULES}/test_unclean_recovery.py::"
            "test_balanced_waits_for_everybody_that_was_known_last",
        ),
    ),
    Mutant(
        name="the-shortest-log-leads",
        rule="ELR-4",
        breaks="a recovery compares the ends of logs the wrong way round",
        edits=(Edit(_RECOVERY, "recover_leader", "max", "min"),),
        seeds=Seeds(story="all_machines_lose_power", count=12, brokers=3, by=("REP-3",)),
        tests=(
            f"{_RULES}/test_unclean_recovery.py::"
            "test_nobody_that_answered_has_more_than_the_one_that_leads",
        ),
    ),
    # Departures and returns
    Mutant(
        name="stay-in-sync-after-a-power-loss",
        rule="REP-6",
        breaks="a broker that comes back takes its logs for whole",
        edits=(
            Edit(
                _DEPARTURE,
                "decide_condition",
                "if not has_log: ...",
                "return ReplicaCondition.WHOLE\nif not has_log: ...",
            ),
        ),
        seeds=Seeds(kinds=("POWER_LOSS", "EMPTY_DISK"), by=("REP-6",)),
        is_sample=True,
    ),
    Mutant(
        name="any-boot-is-the-same-boot",
        rule="REP-6",
        breaks="a folder counts as spared though the machine was started since",
        edits=(
            Edit(
                _MEMBERSHIP,
                "BrokerLifecycle._prepare_registration",
                "note.boot_id == self._boot_id",
                "note.boot_id",
            ),
        ),
        seeds=Seeds(kinds=("POWER_LOSS",), by=("REP-6",)),
    ),
    Mutant(
        name="no-new-epoch-after-a-restart",
        rule="REP-1",
        breaks="a broker that is back keeps the epoch that it led in",
        edits=(_NO_NEW_EPOCH,),
        seeds=Seeds(kinds=("CRASH", "CRASH_ALL"), by=("LIVE",)),
        tests=(
            f"{_RULES}/test_broker_shutdown.py::test_a_whole_replica_leads_again_under_a_new_epoch",
        ),
    ),
    Mutant(
        name="register-before-telling-of-holes",
        rule="REP-6",
        breaks="a broker registers before it has left the in-sync sets",
        edits=(
            Edit(
                _MEMBERSHIP,
                "BrokerLifecycle.join",
                "await self._prepare_registration(notes)\n"
                "await self._missing.note(self._publisher.image)\n"
                "await self._register()",
                "await self._register()\n"
                "await self._prepare_registration(notes)\n"
                "await self._missing.note(self._publisher.image)",
            ),
        ),
        seeds=Seeds(kinds=("POWER_LOSS", "EMPTY_DISK"), by=("REP-6",)),
    ),
    # Missing disks
    Mutant(
        name="an-empty-folder-takes-the-place-of-the-only-copy",
        rule="DEL-3",
        breaks="a broker starts without the disk that has all of a partition",
        edits=(
            Edit(
                _MISSING,
                "MissingLogDirs.refuse_only_copies",
                "not missing",
                "missing is not None",
            ),
        ),
        seeds=Seeds(kinds=("UNMOUNT", "CRASH", "ISOLATE"), by=("DEL-3",)),
        tests=(
            "unit/broker/test_missing_log_dirs.py::"
            "test_an_empty_folder_is_not_served_in_the_place_of_the_only_replica",
        ),
    ),
    Mutant(
        name="a-broker-alone-begins-a-second-store",
        rule="DEL-3",
        breaks="a broker alone does not miss the directory that has its store",
        edits=(Edit("moldau.broker.missing_log_dirs", "_check_notes", "is_known", "False"),),
        tests=(
            "unit/broker/test_store_directory.py::"
            "test_a_new_store_is_not_begun_while_the_directory_that_has_it_is_left_out",
        ),
    ),
    Mutant(
        name="the-only-copy-is-looked-for-too-early",
        rule="DEL-3",
        breaks="two brokers that miss a disk each leave the sets to each other",
        edits=(
            Edit(
                _MEMBERSHIP,
                "BrokerLifecycle._plan_return",
                "self._missing.refuse_only_copies(image)",
            ),
        ),
        tests=(
            "unit/broker/test_missing_log_dirs.py::"
            "test_of_two_brokers_without_their_disks_the_last_one_does_not_start",
        ),
    ),
    Mutant(
        name="an-empty-log-is-the-best-that-there-is",
        rule="LOG-14",
        breaks="while nobody leads, an empty log is made in the place of one that is gone",
        edits=(
            Edit(
                "moldau.replication.replica_logs",
                "ReplicaLogs._require_unmissed",
                "nobody_leads and self._log_store.is_missed(key)",
                "False",
            ),
        ),
        tests=(
            "unit/broker/test_lost_folders.py::test_the_only_copy_is_not_replaced_by_an_empty_log",
            "unit/broker/test_lost_folders.py::"
            "test_nobody_leads_for_the_last_one_in_sync_before_somebody_says_so",
        ),
    ),
    Mutant(
        name="a-log-that-is-gone-is-forgotten",
        rule="LOG-14",
        breaks="the checkpoints do not say any more that there was a log",
        edits=(
            Edit(
                "moldau.storage.checkpoints",
                "_CheckpointFiles.write_offsets",
                "if kept: ...",
                "if kept:\n    pass",
            ),
        ),
        tests=(
            "unit/broker/test_lost_folders.py::test_the_only_copy_is_not_replaced_by_an_empty_log",
        ),
    ),
    Mutant(
        name="logs-with-holes-are-put-away-before-anybody-is-told",
        rule="LOG-13",
        breaks="two brokers with a hole each put their logs away, for each other's",
        edits=(
            Edit(
                _MEMBERSHIP,
                "BrokerLifecycle._prepare_registration",
                "written = await self._write_until_done(self._plan_return)\n"
                "await self._losses.retire_incomplete(self._publisher.image.topics.values(), "
                "written)",
                "topics = self._publisher.image.topics\n"
                "states = {TopicPartition(name, number): state for name, topic in "
                "topics.items() for number, state in enumerate(topic.partitions)}\n"
                "await self._losses.retire_incomplete(topics.values(), states)\n"
                "await self._write_until_done(self._plan_return)",
            ),
        ),
        tests=(
            "unit/broker/test_incomplete_logs.py::"
            "test_of_two_that_come_with_a_hole_each_one_keeps_what_it_has",
        ),
    ),
    Mutant(
        name="a-disk-that-is-back-counts-as-whole",
        rule="DEL-3",
        breaks="what was noted on a disk before it was missing is believed when it is back",
        edits=(
            Edit(
                "moldau.broker.unclean_shutdown",
                "ReplicaLosses._is_intact",
                "self._missing.was_in_use(folder) and "
                "(folder in self.intact_folders or log.was_closed)",
                "folder in self.intact_folders or log.was_closed",
            ),
        ),
        seeds=Seeds(kinds=("UNMOUNT", "CRASH"), by=("REP-6",)),
        tests=(
            "unit/broker/test_missing_log_dirs.py::"
            "test_a_disk_that_is_back_after_others_took_its_place_is_not_in_sync",
        ),
    ),
    Mutant(
        name="a-clean-stop-speaks-for-logs-without-a-topic",
        rule="REP-6",
        breaks="what a log lost while its topic was away is forgotten with the next clean stop",
        edits=(
            Edit(
                _MEMBERSHIP,
                "BrokerLifecycle._prepare_registration",
                "await self._losses.note_unreported(self._publisher.image)",
            ),
        ),
        tests=(
            "unit/broker/test_vanished_topics.py::"
            "test_a_hole_in_the_log_of_a_topic_that_was_away_outlives_a_clean_stop",
        ),
    ),
    # Moves
    Mutant(
        name="a-replica-counts-for-a-log-that-it-has-deleted",
        rule="CTL-3",
        breaks="replicas leave and come back under one epoch, and nobody looks at that itself",
        edits=(
            _MOVE_UNDER_THE_SAME_EPOCH,
            Edit(_WRITER, "_require_epoch", "set(former.replicas) == set(state.replicas)", "True"),
            Edit(
                "moldau.replication.rules.stray_replicas",
                "find_status",
                "state.leader_epoch <= seen_epoch",
                "state.leader_epoch < seen_epoch",
            ),
            Edit(
                "moldau.simulation.observer",
                "ClusterImages._note_pair",
                "state.leader_epoch <= former.leader_epoch",
                "state.leader_epoch < former.leader_epoch",
            ),
        ),
        seeds=Seeds(
            story="a_replica_leaves_and_comes_back_before_its_last_fetch_arrives",
            brokers=3,
            by=("REP-3",),
        ),
    ),
    Mutant(
        name="a-move-under-the-same-epoch",
        rule="CTL-3",
        breaks="a step of a move takes replicas away and adds others under the same epoch",
        edits=(
            _MOVE_UNDER_THE_SAME_EPOCH,
            Edit(_WRITER, "_require_epoch", "set(former.replicas) == set(state.replicas)", "True"),
        ),
        seeds=Seeds(by=("CTL-3",)),
        is_sample=True,
        tests=(
            f"{_RULES}/test_reassignment.py::"
            "test_a_replica_that_leaves_and_comes_back_does_so_under_new_epochs",
        ),
    ),
    Mutant(
        name="a-state-with-the-replicas-of-another-moment",
        rule="META-4",
        breaks="a topic that is moved while it is read is taken as it was read",
        edits=(
            Edit(
                "moldau.cluster.metadata_reader",
                "MetadataReader._read_into",
                "end is None or not _is_same(assigned.node, end)",
                "end is None",
            ),
        ),
        seeds=Seeds(by=("META-4",)),
        tests=(
            f"{_UNIT}/test_states_and_replicas.py::test_what_is_published_was_so_at_one_moment",
        ),
    ),
    # The controller
    Mutant(
        name="a-controller-without-a-fence",
        rule="CTL-1",
        breaks="a controller whose term is over goes on writing",
        edits=(
            Edit(_CONTROLLERSHIP, "transact_in_term", "term is None", "term is None or term.epoch"),
        ),
        tests=(
            f"{_UNIT}/test_state_writer.py::test_a_controller_whose_term_is_over_writes_nothing",
        ),
    ),
    Mutant(
        name="take-a-lost-answer-for-a-yes",
        rule="ISR-3",
        breaks="a write whose answer was lost counts as done, whoever wrote",
        edits=(
            Edit(
                _WRITER,
                "StateWriter._came_through",
                "not await self._is_written(part)",
                "not await self._is_written(part) and (not part)",
            ),
        ),
        tests=(
            f"{_UNIT}/test_state_writer.py::"
            "test_who_was_overtaken_has_written_nothing_and_knows_what_is_there",
        ),
    ),
    Mutant(
        name="publish-what-was-written-over",
        rule="META-1",
        breaks="a state that was written is published over one that was written later",
        edits=(_PUBLISH_WHAT_WAS_WRITTEN_OVER,),
        seeds=Seeds(count=6),
        redundant=(
            "an image takes no state whose node's version is older than the one it has "
            "(publish-what-was-read-earlier)"
        ),
        caught_with="publish-anything",
    ),
    Mutant(
        name="publish-anything",
        rule="META-1",
        breaks="states are published in whatever order they come",
        edits=(_PUBLISH_WHAT_WAS_WRITTEN_OVER, _PUBLISH_WHAT_WAS_READ_EARLIER),
        tests=(
            f"{_UNIT}/test_state_writer.py::test_a_published_state_never_goes_back_to_an_older_one",
        ),
    ),
    # What clients are told
    Mutant(
        name="tell-of-brokers-that-are-gone",
        rule="metadata answers",
        breaks="what was encoded is kept when a broker comes or goes",
        edits=(
            Edit(
                _ENCODED,
                "EncodedTopics._kept_for",
                "self._alive != image.brokers.keys()",
                "not self._alive",
            ),
        ),
        tests=(
            "unit/broker/test_topic_metadata.py"
            "::test_a_broker_that_comes_or_goes_changes_what_is_said_of_every_topic",
        ),
    ),
    Mutant(
        name="tell-of-topics-as-they-were",
        rule="metadata answers",
        breaks="what was encoded is kept when a topic changes",
        edits=(
            Edit(_ENCODED, "_find_body", "encoded.state is not topic"),
            Edit(
                _ENCODED,
                "EncodedTopics._kept_for",
                "self._current is not image.topics",
                "not self._current",
            ),
        ),
        tests=(
            "unit/broker/test_topic_metadata.py::test_a_change_costs_the_topics_that_it_is_about",
        ),
    ),
    Mutant(
        name="stay-without-a-registration",
        rule="DEL-1",
        breaks="a broker whose registration was taken away goes on by what the store says then",
        edits=(
            Edit(
                _MEMBERSHIP,
                "BrokerLifecycle._check_registration",
                "own is None or own.epoch != self.broker_epoch",
                "own is None and self.broker_epoch < 0",
            ),
        ),
        tests=("unit/broker/test_emptied_stores.py",),
    ),
    Mutant(
        name="take-the-place-of-the-broker-that-a-folder-was-copied-from",
        rule="REP-1",
        breaks="the note in a copied folder ends the registration of a broker at work",
        edits=(
            Edit(
                "moldau.broker.unclean_shutdown",
                "SessionNote.is_of_dead_process",
                "self.is_of_this_folder",
            ),
        ),
        tests=(
            "unit/broker/test_lifecycle.py"
            "::test_a_copy_of_the_folder_of_a_broker_at_work_takes_nothing_from_it",
        ),
    ),
    Mutant(
        name="versions-are-those-of-any-topic-of-the-name",
        rule="ISR-3",
        breaks="a leader of a deleted topic writes into the one that was made again under its name",
        edits=(
            Edit(
                "moldau.cluster.state_writer",
                "StateWriter._transact",
                "term is None",
                "part is None",
            ),
        ),
        tests=(
            f"{_UNIT}/test_state_writer.py::"
            "test_a_state_of_a_deleted_topic_is_not_written_into_one_made_again_under_its_name",
        ),
    ),
    Mutant(
        name="take-no-answer-for-a-yes",
        rule="ISR-3",
        breaks="a write of states that no answer came to counts as done",
        edits=(
            Edit(
                "moldau.cluster.state_writer",
                "StateWriter._until_known",
                "await self._publisher.clock.sleep(RETRY_SECONDS)",
                "return True",
            ),
        ),
        seeds=Seeds(first=10, count=15, kinds=("ELECT_COORDINATION", "CUT", "CRASH")),
    ),
)
