"""Transaction coordinators: who may decide, what a decision is, and when it is carried out."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_MEMORY = "unit/coordinators/transactions/test_coordinator_in_memory.py"
_LOG = "moldau.coordinators.transactions.rules.records"
_MANY = "test_a_transaction_that_is_taken_can_be_ended_however_many_partitions_it_has"
_LOST = "test_a_member_that_was_replaced_has_no_name_to_commit_by_in_a_transaction"

MUTANTS = (
    Mutant(
        name="a-new-coordinator-forgets-markers",
        rule="TXN-3",
        breaks="what is prepared in the log of a coordinator that takes over is left alone",
        edits=(
            Edit(
                "moldau.coordinators.transactions.coordinator",
                "TransactionShard._on_loaded",
                "for markers in self._machine.markers(): ...",
                "self._machine.markers()",
            ),
        ),
        seeds=Seeds(count=3, transactions=True),
        tests=(f"{_MEMORY}::test_a_decision_is_carried_out_by_the_next_coordinator",),
    ),
    Mutant(
        name="an-open-transaction-fills-its-record",
        rule="TXP-6",
        breaks="a transaction takes partitions until its end does not fit into the log",
        edits=(Edit(_LOG, "", "_ROOM_BYTES: Final = 256", "_ROOM_BYTES: Final = 0"),),
        tests=(f"{_MEMORY}::{_MANY}",),
    ),
    Mutant(
        name="a-lost-member-commits-in-a-transaction",
        rule="TXN-4",
        breaks="a consumer that its group has lost commits offsets as somebody without generation",
        edits=(
            Edit(
                "moldau.client.consumer.rules.machine",
                "ConsumerMachine.require_identity",
                "if identity is None: ...\nreturn identity",
                "return identity or self.require_membership().identity",
            ),
        ),
        seeds=Seeds(count=5, transactions=True, by=("TXN-4",)),
        tests=(f"unit/client/test_consumer_groups.py::{_LOST}",),
    ),
    Mutant(
        name="two-phases-time-out",
        rule="TXN-6",
        breaks="a prepared transaction of two phases is aborted when time is over",
        edits=(
            Edit(
                "moldau.coordinators.transactions.rules.transaction_metadata",
                "TransactionMetadata.may_time_out",
                "not self.has_two_phases",
            ),
            Edit(
                "moldau.coordinators.transactions.rules.transaction_metadata",
                "",
                "2 ** 31 - 1",
                "1000",
            ),
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
                "moldau.coordinators.transactions.rules.transactions",
                "_init",
                "found.has_two_phases",
                "not found.has_two_phases",
            ),
        ),
        seeds=Seeds(count=7, first=10, transactions=True, by=("TXN-6",)),
        tests=(f"{_MEMORY}::test_a_prepared_transaction_waits_and_another_process_completes_it",),
    ),
    Mutant(
        name="requests-that-waited-for-markers-stay-in-memory",
        rule="memory",
        breaks="a client that asks again and again fills the memory of the coordinator",
        edits=(
            Edit(
                "moldau.coordinators.transactions.coordinator",
                "TransactionShard.wait_until_completed",
                "future in waiting",
                "False",
            ),
        ),
        tests=(
            f"{_MEMORY}::test_requests_that_have_stopped_waiting_for_markers_leave_nothing_behind",
        ),
    ),
)
