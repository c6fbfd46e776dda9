"""Transaction coordinators: who may decide, what a decision is, and when it is carried out."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_RULES = "moldau.transactions.rules.transactions"
_STEPS = "moldau.transactions.rules.transaction_metadata"
_MACHINE = "unit/transactions/rules/test_transactions_machine.py"
_LAST_MARKER = "test_a_transaction_is_complete_when_its_last_partition_has_its_marker"
_MEMORY = "unit/transactions/test_coordinator_in_memory.py"
_LOG = "moldau.transactions.transaction_log"
_MANY = "test_a_transaction_that_is_taken_can_be_ended_however_many_partitions_it_has"
_LOST = "test_a_member_that_was_replaced_has_no_name_to_commit_by_in_a_transaction"

MUTANTS = (
    Mutant(
        name="a-transaction-is-complete-before-its-last-marker",
        rule="TXN-3",
        breaks="a transaction is completed while a partition has no marker yet",
        edits=(Edit(_RULES, "        if left:\n", "        if len(left) > 1:\n"),),
        tests=(f"{_MACHINE}::{_LAST_MARKER}",),
    ),
    Mutant(
        name="a-fenced-producer-adds-partitions",
        rule="TXN-2",
        breaks="AddPartitionsToTxn of an epoch that is over is taken",
        edits=(
            Edit(
                _RULES,
                "    if producer != found.client:\n        return ErrorCode.producer_fenced\n",
                "",
            ),
        ),
        tests=(
            f"{_MEMORY}::test_the_second_producer_fences_the_first_and_aborts_what_it_left_open",
        ),
    ),
    Mutant(
        name="an-end-does-not-raise-the-epoch",
        rule="KIP-890",
        breaks="under transaction version 2 markers carry the epoch of the records",
        edits=(
            Edit(
                _STEPS,
                "        producer_epoch=former.producer_epoch + 1,\n"
                "        last_producer_epoch=client.producer_epoch,\n",
                "        last_producer_epoch=client.producer_epoch,\n",
            ),
        ),
        tests=(
            f"{_MEMORY}::test_version_2_raises_the_epoch_with_every_end_and_knows_a_repetition",
        ),
    ),
    Mutant(
        name="fencing-does-not-raise-the-epoch",
        rule="TXN-2",
        breaks="a transaction that timed out is aborted under the epoch of its producer",
        edits=(
            Edit(
                _STEPS,
                "producer_epoch=min(former.producer_epoch + step, MAX_EPOCH),",
                "producer_epoch=former.producer_epoch,",
            ),
        ),
        tests=(
            f"{_MEMORY}::test_a_transaction_whose_time_is_over_is_aborted_and_its_producer_fenced",
        ),
    ),
    Mutant(
        name="a-decision-is-answered-with-its-opposite",
        rule="TXN-1",
        breaks="an EndTxn that asks for the opposite of what was decided is a success",
        edits=(Edit(_RULES, "    if was_commit != event.commit:\n", "    if False:\n"),),
        tests=(f"{_MEMORY}::test_a_transaction_from_its_beginning_to_its_end",),
    ),
    Mutant(
        name="a-new-coordinator-forgets-markers",
        rule="TXN-3",
        breaks="what is prepared in the log of a coordinator that takes over is left alone",
        edits=(
            Edit(
                "moldau.transactions.shard",
                "        for markers in self._machine.markers():\n"
                "            self._order(markers)\n",
                "        self._machine.markers()\n",
            ),
        ),
        seeds=Seeds(count=3, transactions=True),
        tests=(f"{_MEMORY}::test_a_decision_is_carried_out_by_the_next_coordinator",),
    ),
    Mutant(
        name="two-phases-time-out",
        rule="TXN-6",
        breaks="a prepared transaction of two phases is aborted when time is over",
        edits=(
            Edit(_STEPS, " and not self.has_two_phases\n", "\n"),
            Edit(_STEPS, "NO_TIMEOUT_MS: Final = 2**31 - 1", "NO_TIMEOUT_MS: Final = 1000"),
        ),
        seeds=Seeds(count=16, transactions=True, by=("TXN-6",)),
        tests=(f"{_MEMORY}::test_a_prepared_transaction_waits_and_another_process_completes_it",),
    ),
    Mutant(
        name="a-successor-aborts-what-is-prepared",
        rule="TXN-6",
        breaks="a producer that is to complete what another one has prepared has it aborted",
        edits=(
            Edit(
                "moldau.transactions.rules.transactions",
                "    if event.keeps_prepared and found.has_two_phases:\n",
                "    if event.keeps_prepared and not found.has_two_phases:\n",
            ),
        ),
        seeds=Seeds(count=7, first=10, transactions=True, by=("TXN-6",)),
        tests=(f"{_MEMORY}::test_a_prepared_transaction_waits_and_another_process_completes_it",),
    ),
    Mutant(
        name="an-open-transaction-fills-its-record",
        rule="TXP-6",
        breaks="a transaction takes partitions until its end does not fit into the log",
        edits=(Edit(_LOG, "_ROOM_BYTES: Final = 256", "_ROOM_BYTES: Final = 0"),),
        tests=(f"{_MEMORY}::{_MANY}",),
    ),
    Mutant(
        name="a-lost-member-commits-in-a-transaction",
        rule="TXN-4",
        breaks="a consumer that its group has lost commits offsets as somebody without generation",
        edits=(
            Edit(
                "moldau.client.rules.consumer_machine",
                "        if identity is None:\n"
                "            raise self.require_commits().refuse_lost_member()\n"
                "        return identity\n",
                "        return identity or self.require_membership().identity\n",
            ),
        ),
        seeds=Seeds(count=5, transactions=True, by=("TXN-4",)),
        tests=(f"unit/client/test_consumer_groups.py::{_LOST}",),
    ),
    Mutant(
        name="verification-accepts-any-partition",
        rule="KIP-890",
        breaks="a partition that was never added is written to in the open transaction",
        edits=(
            Edit(
                "moldau.transactions.rules.transactions",
                "is_open and one in found.partitions else absent",
                "is_open else absent",
            ),
        ),
        tests=(
            "unit/transactions/rules/test_transactions_machine.py"
            "::test_verification_accepts_only_partitions_of_the_open_transaction",
        ),
    ),
    Mutant(
        name="transactional-ids-expire-in-the-middle-of-a-transaction",
        rule="transactional.id.expiration.ms",
        breaks="an id whose transaction is open or has markers to come is removed",
        edits=(
            Edit(
                "moldau.transactions.rules.transaction_metadata",
                "return self.state.is_idle and self.updated_ms",
                "return self.updated_ms",
            ),
        ),
        tests=(
            "unit/transactions/rules/test_transactions_machine.py"
            "::test_a_transactional_id_expires_only_while_no_transaction_is_open_or_undelivered",
        ),
    ),
    Mutant(
        name="transactions-that-have-ended-count-as-open",
        rule="TXP-6",
        breaks="the search for what has timed out looks at more and more transactions",
        edits=(Edit(_RULES, "        self._open.pop(transactional_id, None)\n", ""),),
        tests=("unit/transactions/rules/test_transactions_under_faults.py",),
    ),
    Mutant(
        name="requests-that-waited-for-markers-stay-in-memory",
        rule="memory",
        breaks="a client that asks again and again fills the memory of the coordinator",
        edits=(
            Edit(
                "moldau.transactions.shard",
                "            if future in waiting:",
                "            if False:",
            ),
        ),
        tests=(
            f"{_MEMORY}::test_requests_that_have_stopped_waiting_for_markers_leave_nothing_behind",
        ),
    ),
)
