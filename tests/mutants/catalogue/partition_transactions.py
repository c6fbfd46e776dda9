"""Transactions as partitions and groups see them: when they begin, end and are read."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_STATE = "moldau.storage.rules.producer_state"
_PARTITION = "moldau.replication.partition"
_PENDING = "moldau.coordinators.groups.rules.offsets"
_BROKER = "unit/broker/test_partition_transactions.py"
_MODEL = "unit/storage/test_transaction_model.py"
_OFFSETS = "unit/coordinators/groups/test_pending_offsets.py"

MUTANTS = (
    Mutant(
        name="a-transaction-is-stable-before-its-marker-is-committed",
        rule="TXP-1",
        breaks="a transaction counts as decided although its end marker may be lost",
        edits=(
            Edit(
                _STATE,
                "ProducerState.apply_marker",
                "self._completed.append((first_offset, base_offset))",
            ),
        ),
        tests=(
            "unit/storage/test_producer_state.py::"
            "test_a_transaction_holds_the_last_stable_offset_until_its_marker_is_below_"
            "the_high_watermark",
        ),
    ),
    Mutant(
        name="undecided-records-are-read",
        rule="HW-3",
        breaks="a reader of decided transactions gets the records of open ones",
        edits=(
            Edit(
                _PARTITION,
                "Partition.read",
                "last_stable_offset if read_committed else high_watermark",
                "high_watermark",
            ),
        ),
        seeds=Seeds(count=3, transactions=True),
        tests=(f"{_BROKER}::test_what_a_transaction_wrote_is_read_when_it_is_decided",),
    ),
    Mutant(
        name="a-marker-leaves-questions-open",
        rule="TXP-2",
        breaks="a batch that was confirmed before the end marker is appended behind it",
        edits=(
            Edit(
                _STATE,
                "ProducerState.apply_marker",
                "del self._verifications[header.producer_id]",
                "pass",
            ),
        ),
        tests=(
            f"{_BROKER}::"
            "test_a_batch_that_is_confirmed_before_the_marker_is_not_appended_behind_it",
            f"{_BROKER}::test_offsets_that_come_after_the_marker_are_refused",
        ),
    ),
    Mutant(
        name="aborted-transactions-are-not-told",
        rule="TXP-4",
        breaks="a reader of decided transactions is not told which ones were aborted",
        edits=(
            Edit(
                "moldau.storage.producer_snapshots",
                "replay_marker",
                "completed.aborted",
                "completed.first_offset < 0",
            ),
        ),
        seeds=Seeds(count=3, transactions=True),
        tests=(_MODEL,),
    ),
    Mutant(
        name="an-abort-commits-offsets",
        rule="TXP-5",
        breaks="offsets of an aborted transaction become the group's",
        edits=(Edit(_PENDING, "PendingOffsets.end", "not is_commit", "not ended"),),
        seeds=Seeds(count=3, transactions=True),
        tests=(
            f"{_OFFSETS}::test_an_abort_drops_them_and_a_group_of_nothing_else_with_them",
            f"{_BROKER}::test_offsets_of_a_transaction_become_the_groups_with_its_commit",
        ),
    ),
    Mutant(
        name="compaction-tells-of-aborted-transactions-without-markers",
        rule="TXP-4",
        breaks="readers skip what a producer committed after an aborted transaction that is gone",
        edits=(
            Edit(
                "moldau.storage.log_cleaner",
                "CompactionRound._complete",
                "(aborted.producer_id, aborted.first_offset) in with_data",
                "with_data is not None",
            ),
        ),
        tests=("unit/storage/test_cleaner.py",),
    ),
)
