"""Share groups at the leader of a partition: who has a record, for how long, and what is stored."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_IN_FLIGHT = "moldau.shares.rules.in_flight"
_RUNS = "moldau.shares.rules.offset_runs"
_PARTITION = "moldau.shares.share_partition"
_FETCH = "moldau.broker.handlers.share_fetch"
_HANDLERS = "unit/broker/handlers/test_share_handlers.py"
_RUN_TESTS = "unit/shares/rules/test_offset_runs.py"
_RULES = "unit/shares/rules/test_in_flight.py"
_MODEL = "unit/shares/rules/test_in_flight_model.py"
_SHELL = "unit/shares/test_share_partition.py"

MUTANTS = (
    Mutant(
        name="neighbours-that-are-alike-stay-apart",
        rule="SHR-1",
        breaks="a share partition keeps an entry for each acknowledgement instead of one for all",
        edits=(
            Edit(
                _RUNS,
                "    if runs and runs[-1].lot == new.lot:",
                "    if False:",
            ),
        ),
        tests=(_MODEL, _RUN_TESTS),
    ),
    Mutant(
        name="what-is-done-at-the-start-is-counted-twice",
        rule="SHR-2",
        breaks="the lag of a share group is less than what is left to do",
        edits=(Edit(_IN_FLIGHT, "            complete_count -= run.size\n", ""),),
        tests=(_RULES,),
    ),
    Mutant(
        name="takers-of-queues-have-no-quota",
        rule="consumer_byte_rate holds for all who read",
        breaks="a share group reads as much as it likes, whatever its quota is",
        edits=(
            Edit(
                _FETCH,
                "shares.sessions.is_open(session) and _may_fetch(context):",
                "shares.sessions.is_open(session):",
            ),
        ),
        tests=(f"{_HANDLERS}::test_records_count_towards_the_quota_of_consumers",),
    ),
    Mutant(
        name="runs-between-changes-are-lost",
        rule="SHR-1",
        breaks="records between two that are acknowledged together belong to nobody",
        edits=(Edit(_RUNS, "                rebuilt += runs[index + 1 : found]\n", ""),),
        tests=(_RUN_TESTS,),
    ),
    Mutant(
        name="a-shorter-lock-ends-with-a-longer-one",
        rule="SHR-5",
        breaks="the group has lowered its time, and records wait for locks from before",
        edits=(
            Edit(
                _PARTITION,
                "        if deadline < self._timer_at and self.failure is None:",
                "        if self._timer is None and deadline < math.inf and self.failure is None:",
            ),
        ),
        tests=(f"{_SHELL}::test_a_lock_is_as_short_as_the_group_wants_it_by_now",),
    ),
    Mutant(
        name="a-share-group-begins-by-a-setting-that-was-replaced",
        rule="SHR-7",
        breaks="a group begins at the end although another broker has confirmed earliest",
        edits=(Edit(_PARTITION, "        await self._refresh_settings()\n", ""),),
        tests=(_SHELL,),
    ),
    Mutant(
        name="a-fault-leaves-records-pending",
        rule="SHR-3",
        breaks="after a fault nobody gets the records, and nobody can acknowledge them",
        edits=(
            Edit(_PARTITION, "            if left:  # the broker ends", "            if False:  #"),
        ),
        tests=(
            f"{_SHELL}::"
            "test_after_a_fault_of_ours_records_are_acquired_as_before_and_can_be_acknowledged",
        ),
    ),
    Mutant(
        name="a-pending-record-is-acknowledged-again",
        rule="SHR-3",
        breaks="a record is accepted while its release is being stored",
        edits=(
            Edit(
                _IN_FLIGHT,
                "            if run.lot.member != member or run.lot.pending is not None:",
                "            if run.lot.member != member:",
            ),
        ),
        tests=(_MODEL, f"{_RULES}::test_while_a_change_is_stored_nobody_has_the_records"),
    ),
    Mutant(
        name="anybody-acknowledges",
        rule="SHR-4",
        breaks="a member acknowledges what another one has",
        edits=(
            Edit(
                _IN_FLIGHT,
                "            if run.lot.member != member or run.lot.pending is not None:",
                "            if not run.lot.member or run.lot.pending is not None:",
            ),
        ),
        tests=(_MODEL, f"{_RULES}::test_only_who_has_a_record_acknowledges_it"),
    ),
    Mutant(
        name="records-are-delivered-for-ever",
        rule="SHR-5",
        breaks="a record that was delivered too often is released again",
        edits=(
            Edit(
                _IN_FLIGHT,
                "    if kind is AcknowledgeType.RELEASE and "
                "lot.delivery_count < limits.delivery_count_limit:",
                "    if kind is AcknowledgeType.RELEASE:",
            ),
        ),
        tests=(_MODEL, f"{_RULES}::test_what_was_delivered_too_often_comes_to_its_end"),
    ),
    Mutant(
        name="a-lock-lasts-for-ever",
        rule="SHR-5",
        breaks="what a stuck member has never comes to another one",
        edits=(
            Edit(
                _IN_FLIGHT,
                "            return lot.deadline <= now and lot.pending is None",
                "            return False",
            ),
        ),
        tests=(_MODEL, f"{_SHELL}::test_a_lock_that_is_over_is_counted_and_stored"),
    ),
    Mutant(
        name="as-many-locks-as-anybody-likes",
        rule="SHR-6",
        breaks="members acquire without end while the first record is stuck",
        edits=(
            Edit(
                _IN_FLIGHT,
                "        return self.end_offset - self.start_offset < limits.max_record_locks",
                "        return True",
            ),
        ),
        tests=(f"{_RULES}::test_new_records_are_not_acquired_beyond_the_limit_of_locks",),
    ),
    Mutant(
        name="the-start-passes-what-is-not-done",
        rule="SHR-2",
        breaks="records that were released are skipped",
        edits=(
            Edit(
                _IN_FLIGHT,
                "            if not run.lot.is_final:\n                break\n",
                "            if run.lot.member:\n                break\n",
            ),
        ),
        seeds=Seeds(count=3, shares=True, by=("SHR-9",)),
        tests=(_MODEL,),
    ),
    Mutant(
        name="the-stored-start-is-ahead",
        rule="SHR-3",
        breaks="the next leader skips records whose acknowledgement was not stored",
        edits=(
            Edit(
                _IN_FLIGHT,
                "    if lot.pending is not None and lot.pending.change_id in completed:",
                "    if lot.pending is not None:",
            ),
        ),
        tests=(_MODEL,),
    ),
    Mutant(
        name="told-before-it-is-stored",
        rule="SHR-3",
        breaks="a client hears that its acknowledgement counts, and the next leader knows nothing",
        edits=(
            Edit(
                _PARTITION,
                "        self._store_soon(_Waiting(change, stored))\n"
                "        return asyncio.shield(stored)",
                "        self._store_soon(_Waiting(change, None))\n"
                "        stored.set_result(None)\n"
                "        return asyncio.shield(stored)",
            ),
        ),
        seeds=Seeds(count=3, shares=True, by=("SHR-3", "SHR-8")),
        tests=(f"{_SHELL}::test_nobody_is_told_before_it_is_stored",),
    ),
    Mutant(
        name="the-first-offset-is-not-stored",
        rule="SHR-7",
        breaks="a group that begins at the end begins at a later one after a failover",
        edits=(Edit(_PARTITION, "        await self._store.write(self.key, write)\n", ""),),
        tests=(f"{_SHELL}::test_where_the_group_begins_is_stored_before_anything_is_delivered",),
    ),
    Mutant(
        name="a-fenced-leader-goes-on",
        rule="SHR-3",
        breaks="a leader that another one has followed keeps giving records away",
        edits=(
            Edit(
                _PARTITION,
                "            if isinstance(error, _FENCINGS):",
                "            if False:",
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
                "moldau.shares.share_partition",
                "if not self.partition.holds_lease:",
                "if not self.partition.is_leader:",
            ),
        ),
        tests=(
            "unit/shares/test_share_partition.py"
            "::test_a_leader_whose_lease_is_over_delivers_nothing",
        ),
    ),
    Mutant(
        name="a-lost-session-ends-share-partitions",
        rule="SHR-11",
        breaks="a leader that is back in the same epoch refuses what members say of records",
        edits=(
            Edit(
                _PARTITION,
                "        return not partition.is_leader and not partition.state.is_suspended",
                "        return not partition.is_leader",
            ),
        ),
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
                "moldau.shares.share_partitions",
                "            if found.is_over or found.partition is not partition:",
                "            if found.is_over:",
            ),
        ),
        tests=(f"{_SHELL}::test_a_partition_that_is_not_here_any_more_has_no_share_partition",),
    ),
    Mutant(
        name="a-close-takes-a-delivery-back",
        rule="SHR-10",
        breaks="a record that every consumer abandons is delivered for ever",
        edits=(
            Edit(
                _IN_FLIGHT,
                "            return lot.member == member and lot.pending is None\n\n"
                "        return self._give_back(is_concerned, limits)",
                "            return lot.member == member and lot.pending is None\n\n"
                "        self._runs.change(self.start_offset, self.end_offset, lambda lot: "
                "lot._replace(delivery_count=lot.delivery_count - 1) if is_concerned(lot) "
                "else lot)\n"
                "        return self._give_back(is_concerned, limits)",
            ),
        ),
        tests=(
            f"{_RULES}::test_what_a_member_closes_its_session_with_was_delivered",
            f"{_HANDLERS}::test_a_record_that_every_consumer_abandons_by_closing_comes_to_its_end",
        ),
    ),
    Mutant(
        name="a-share-partition-goes-while-dead-letters-are-written",
        rule="SHR-9",
        breaks="a letter is written, its record is not stored as finished, and is delivered again",
        edits=(
            Edit(
                _PARTITION,
                "self._is_writing or self._waiting or self._letters_under_way",
                "self._is_writing or self._waiting",
            ),
        ),
        tests=(f"{_SHELL}::test_a_share_partition_stays_while_its_dead_letters_are_written",),
    ),
    Mutant(
        name="a-share-group-is-given-records-of-aborted-transactions",
        rule="SHR-12",
        breaks="a group that reads committed records only is given those of aborted transactions",
        edits=(
            Edit(
                _PARTITION,
                "            if self.read_committed and header.is_transactional and not is_hidden:",
                "            if False:",
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
                _PARTITION,
                "        committed = settings.read_committed\n",
                "        committed = False\n",
            ),
            Edit(
                _PARTITION,
                "        read_committed = self._settings().read_committed\n"
                "        partition = self.partition\n",
                "        read_committed, partition = False, self.partition\n",
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
                _PARTITION,
                "                    aborted.producer_id == header.producer_id\n"
                "                    and aborted.first_offset",
                "                    aborted.first_offset",
            ),
            Edit(
                _PARTITION,
                "header.base_offset <= aborted.last_offset\n",
                "header.base_offset\n",
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
                "moldau.broker.shares",
                "                found.require_check()\n",
                "                pass\n",
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
                "moldau.groups.share_groups",
                "            done = _whole_topics(\n"
                "                answer.partitions, "
                "await self._keeper.delete(group_id, answer.partitions)\n"
                "            )\n",
                "            done = frozenset(answer.partitions)\n",
            ),
        ),
        seeds=Seeds(count=25, shares=True, by=("SHR-13",)),
    ),
)
