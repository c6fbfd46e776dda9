"""Share groups at the leader of a partition: who has a record, for how long, and what is stored."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_IN_FLIGHT = "moldau.coordinators.shares.rules.in_flight"
_PARTITION = "moldau.coordinators.shares.share_partition"
_FETCH = "moldau.broker.handlers.share_fetch"
_HANDLERS = "unit/broker/handlers/test_share_handlers.py"
_MODEL = "unit/coordinators/shares/rules/test_in_flight_model.py"
_SHELL = "unit/coordinators/shares/test_share_partition.py"

MUTANTS = (
    Mutant(
        name="takers-of-queues-have-no-quota",
        rule="consumer_byte_rate holds for all who read",
        breaks="a share group reads as much as it likes, whatever its quota is",
        edits=(Edit(_FETCH, "_serve", "_may_fetch(context)"),),
        tests=(f"{_HANDLERS}::test_records_count_towards_the_quota_of_consumers",),
    ),
    Mutant(
        name="a-shorter-lock-ends-with-a-longer-one",
        rule="SHR-5",
        breaks="the group has lowered its time, and records wait for locks from before",
        edits=(
            Edit(
                _PARTITION,
                "SharePartition._arm_for",
                "deadline < self._timer_at and self.failure is None",
                "self._timer is None and deadline < math.inf and (self.failure is None)",
            ),
        ),
        tests=(f"{_SHELL}::test_a_lock_is_as_short_as_the_group_wants_it_by_now",),
    ),
    Mutant(
        name="a-share-group-begins-by-a-setting-that-was-replaced",
        rule="SHR-7",
        breaks="a group begins at the end although another broker has confirmed earliest",
        edits=(Edit(_PARTITION, "SharePartition._start_at", "await self._refresh_settings()"),),
        tests=(_SHELL,),
    ),
    Mutant(
        name="a-fault-leaves-records-pending",
        rule="SHR-3",
        breaks="after a fault nobody gets the records, and nobody can acknowledge them",
        edits=(Edit(_PARTITION, "SharePartition._write", "if left: ...", "if False: ..."),),
        tests=(
            f"{_SHELL}::"
            "test_after_a_fault_of_ours_records_are_acquired_as_before_and_can_be_acknowledged",
        ),
    ),
    Mutant(
        name="the-start-passes-what-is-not-done",
        rule="SHR-2",
        breaks="records that were released are skipped",
        edits=(
            Edit(
                _IN_FLIGHT,
                "InFlight._advance_start",
                "not run.record_state.is_final",
                "run.record_state.member",
            ),
        ),
        seeds=Seeds(count=3, shares=True, by=("SHR-9",)),
        tests=(_MODEL,),
    ),
    Mutant(
        name="told-before-it-is-stored",
        rule="SHR-3",
        breaks="a client hears that its acknowledgement counts, and the next leader knows nothing",
        edits=(
            Edit(
                _PARTITION,
                "SharePartition._store_change",
                "self._store_soon(_Waiting(change, stored))",
                "self._store_soon(_Waiting(change, None))\nstored.set_result(None)",
            ),
        ),
        seeds=Seeds(count=3, shares=True, by=("SHR-3", "SHR-8")),
        tests=(f"{_SHELL}::test_nobody_is_told_before_it_is_stored",),
    ),
    Mutant(
        name="the-first-offset-is-not-stored",
        rule="SHR-7",
        breaks="a group that begins at the end begins at a later one after a failover",
        edits=(
            Edit(
                _PARTITION, "SharePartition._start_at", "await self._store.write(self.key, write)"
            ),
        ),
        tests=(f"{_SHELL}::test_where_the_group_begins_is_stored_before_anything_is_delivered",),
    ),
    Mutant(
        name="a-fenced-leader-goes-on",
        rule="SHR-3",
        breaks="a leader that another one has followed keeps giving records away",
        edits=(
            Edit(
                _PARTITION,
                "SharePartition._write_together",
                "isinstance(error, _FENCINGS)",
                "False",
            ),
        ),
        tests=(f"{_SHELL}::test_a_state_that_was_made_anew_is_read_again",),
    ),
    Mutant(
        name="deliver-without-a-lease",
        rule="SHR-8",
        breaks="a leader that was replaced and has not heard of it delivers what it knows of",
        edits=(
            Edit(
                "moldau.coordinators.shares.share_partition",
                "SharePartition.acquire",
                "self.partition.holds_lease",
                "self.partition.is_leader",
            ),
        ),
        tests=(
            "unit/coordinators/shares/test_share_partition.py"
            "::test_a_leader_whose_lease_is_over_delivers_nothing",
        ),
    ),
    Mutant(
        name="a-lost-session-ends-share-partitions",
        rule="SHR-11",
        breaks="a leader that is back in the same epoch refuses what members say of records",
        edits=(Edit(_PARTITION, "SharePartition.is_over", "not partition.state.is_suspended"),),
        tests=(
            f"{_SHELL}::test_a_leader_that_has_a_new_session_in_the_same_epoch_knows_what_members_have",
            f"{_HANDLERS}::test_an_acknowledgement_counts_while_the_leader_has_no_session_with_the_store",
        ),
        seeds=Seeds(
            count=25,
            kinds=("PAUSE", "CUT", "EXPIRE", "CRASH"),
            operations=("absences",),
            transactions=True,
            shares=True,
            by=("SHR-11",),
        ),
    ),
    Mutant(
        name="a-share-partition-outlives-its-log",
        rule="SHR-11",
        breaks="a share partition stays when the replica under it is dropped",
        edits=(
            Edit(
                "moldau.coordinators.shares.share_partitions",
                "SharePartitions.on_partition_changed",
                "found.partition is not partition",
            ),
        ),
        tests=(f"{_SHELL}::test_a_partition_that_is_not_here_any_more_has_no_share_partition",),
    ),
    Mutant(
        name="a-share-partition-goes-while-dead-letters-are-written",
        rule="SHR-9",
        breaks="a letter is written, its record is not stored as finished, and is delivered again",
        edits=(Edit(_PARTITION, "SharePartition.is_idle", "self._letters_under_way"),),
        tests=(f"{_SHELL}::test_a_share_partition_stays_while_its_dead_letters_are_written",),
    ),
    Mutant(
        name="a-share-group-is-given-records-of-aborted-transactions",
        rule="SHR-12",
        breaks="a group that reads committed records only is given those of aborted transactions",
        edits=(
            Edit(
                "moldau.coordinators.shares.share_partition",
                "_Window.batches",
                "self.read_committed and header.is_transactional and (not is_hidden)",
                "False",
            ),
        ),
        seeds=Seeds(count=6, transactions=True, shares=True, by=("TXP-4", "SHR-12")),
        tests=(f"{_SHELL}::test_records_of_transactions_as_the_group_wants_them",),
    ),
    Mutant(
        name="a-share-group-is-given-records-of-open-transactions",
        rule="SHR-12",
        breaks="a group that reads committed records only is given those of open transactions",
        edits=(
            Edit(
                "moldau.coordinators.shares.share_partition",
                "SharePartition._find_offset",
                "settings.read_committed",
                "False",
            ),
            Edit(
                "moldau.coordinators.shares.share_partition",
                "SharePartition._read",
                "read_committed = self._settings().read_committed\npartition = self.partition",
                "read_committed, partition = (False, self.partition)",
            ),
        ),
        seeds=Seeds(count=6, transactions=True, shares=True, by=("TXP-4", "SHR-12")),
        tests=(f"{_SHELL}::test_records_of_transactions_as_the_group_wants_them",),
    ),
    Mutant(
        name="a-share-group-skips-a-committed-transaction-beside-an-aborted-one",
        rule="SHR-12",
        breaks="records of a committed transaction never come to a group that reads such only",
        edits=(
            Edit(
                "moldau.coordinators.shares.share_partition",
                "_Window.batches",
                "aborted.producer_id == header.producer_id",
            ),
            Edit(
                "moldau.coordinators.shares.share_partition",
                "_Window.batches",
                "aborted.first_offset <= header.base_offset <= aborted.last_offset",
                "aborted.first_offset <= header.base_offset",
            ),
        ),
        seeds=Seeds(count=6, transactions=True, shares=True, by=("SHR-9",)),
    ),
    Mutant(
        name="who-begins-to-take-is-given-what-a-leader-knew-before-an-alteration",
        rule="SHR-13",
        breaks="offsets of a group are altered, and its leaders go on as before for whoever comes",
        edits=(
            Edit(
                "moldau.coordinators.shares.share_partitions",
                "Shares.begin_taking",
                "found.require_check()",
                "pass",
            ),
        ),
        seeds=Seeds(count=5, first=12, shares=True, by=("SHR-13", "SHR-9")),
        tests=(
            f"{_HANDLERS}::"
            "test_who_joins_begins_where_an_administrator_said_though_an_old_session_is_open",
        ),
    ),
    Mutant(
        name="states-of-share-groups-are-deleted-in-words-only",
        rule="SHR-13",
        breaks="an administrator hears that offsets are deleted, and the group goes on from there",
        edits=(
            Edit(
                "moldau.coordinators.groups.coordinator",
                "GroupCoordinator.delete_share_offsets",
                "await self._persister.delete(group_id, answer.partitions)",
                "{(one, each) for one, some in answer.partitions.items() for each in some}",
            ),
        ),
        seeds=Seeds(count=25, shares=True, by=("SHR-13",)),
    ),
)
