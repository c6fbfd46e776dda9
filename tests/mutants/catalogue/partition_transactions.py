"""Transactions as partitions and groups see them: when they begin, end and are read."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_STATE = "moldau.storage.producer_state"
_SEQUENCES = "moldau.storage.rules.producer_sequences"
_VERIFICATION = "moldau.storage.rules.transaction_verification"
_PARTITION = "moldau.replication.partition"
_PENDING = "moldau.groups.rules.pending_offsets"
_BROKER = "unit/broker/test_partition_transactions.py"
_MODEL = "unit/storage/test_transaction_model.py"
_OFFSETS = "unit/groups/test_pending_offsets.py"

MUTANTS = (
    Mutant(
        name="a-transaction-is-stable-before-its-marker-is-committed",
        rule="TXP-1",
        breaks="a transaction counts as decided although its end marker may be lost",
        edits=(
            Edit(
                _STATE,
                "        self._completed.append((first_offset, base_offset))\n",
                "",
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
                "        end_offset = last_stable_offset if read_committed else high_watermark\n",
                "        end_offset = high_watermark\n",
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
                "            del self._verifications[header.producer_id]\n",
                "            pass\n",
            ),
        ),
        tests=(
            f"{_BROKER}::"
            "test_a_batch_that_is_confirmed_before_the_marker_is_not_appended_behind_it",
            f"{_BROKER}::test_offsets_that_come_after_the_marker_are_refused",
        ),
    ),
    Mutant(
        name="any-question-lets-a-transaction-begin",
        rule="TXP-2",
        breaks="a batch begins a transaction by a question that another one has asked since",
        edits=(
            Edit(_VERIFICATION, "known is None or number != known.number or ", "known is None or "),
        ),
        tests=("unit/storage/rules/test_transaction_verification.py",),
    ),
    Mutant(
        name="a-new-epoch-joins-an-old-transaction",
        rule="TXP-2",
        breaks="records of a new epoch are decided with those that a former one left open",
        edits=(Edit(_VERIFICATION, "        and entry.producer_epoch == producer_epoch\n", ""),),
        tests=("unit/storage/rules/test_transaction_verification.py",),
    ),
    Mutant(
        name="a-late-marker-ends-the-next-transaction",
        rule="TXP-3",
        breaks="an end marker that comes again ends the transaction that began after it",
        edits=(
            Edit(
                _SEQUENCES,
                "    if transaction_version < BUMPED_EPOCHS or header",
                "    if transaction_version < 1 << 30 or header",
            ),
        ),
        tests=(f"{_BROKER}::test_a_marker_that_comes_again_does_not_end_the_next_transaction",),
    ),
    Mutant(
        name="aborted-transactions-are-not-told",
        rule="TXP-4",
        breaks="a reader of decided transactions is not told which ones were aborted",
        edits=(
            Edit(
                "moldau.storage.producer_replay",
                "    if completed is not None and completed.aborted:\n",
                "    if completed is not None and completed.first_offset < 0:\n",
            ),
        ),
        seeds=Seeds(count=3, transactions=True),
        tests=(_MODEL,),
    ),
    Mutant(
        name="a-transaction-takes-a-later-offset-back",
        rule="TXP-5",
        breaks="the end of a transaction replaces an offset that was committed after it",
        edits=(
            Edit(
                _PENDING,
                "        self._supersede(topic, partition, self._next_order)\n",
                "        pass\n",
            ),
        ),
        tests=(f"{_OFFSETS}::test_a_later_commit_outside_of_the_transaction_stays",),
    ),
    Mutant(
        name="an-abort-commits-offsets",
        rule="TXP-5",
        breaks="offsets of an aborted transaction become the group's",
        edits=(Edit(_PENDING, "        if not is_commit:\n", "        if not ended:\n"),),
        seeds=Seeds(count=3, transactions=True),
        tests=(
            f"{_OFFSETS}::test_an_abort_drops_them_and_a_group_of_nothing_else_with_them",
            f"{_BROKER}::test_offsets_of_a_transaction_become_the_groups_with_its_commit",
        ),
    ),
    Mutant(
        name="offsets-in-doubt-expire",
        rule="KIP-211",
        breaks="an offset that an open transaction may replace expires, and its group with it",
        edits=(
            Edit(
                "moldau.groups.rules.expiry",
                "        and not group.pending_offsets.holds(topic, partition)\n",
                "",
            ),
        ),
        tests=(
            f"{_OFFSETS}::test_what_a_transaction_may_replace_does_not_expire_and_keeps_its_group",
        ),
    ),
    Mutant(
        name="compaction-drops-markers-of-records-that-stay",
        rule="TXP-4",
        breaks="an end marker goes although a batch of its transaction is in the log",
        edits=(
            Edit(
                "moldau.storage.rules.compaction",
                "            return not had_data\n",
                "            return True\n",
            ),
        ),
        tests=("unit/storage/test_cleaner.py",),
    ),
    Mutant(
        name="compaction-tells-of-aborted-transactions-without-markers",
        rule="TXP-4",
        breaks="readers skip what a producer committed after an aborted transaction that is gone",
        edits=(
            Edit(
                "moldau.storage.compaction_round",
                "                if (aborted.producer_id, aborted.first_offset) in with_data:\n",
                "                if with_data is not None:\n",
            ),
        ),
        tests=("unit/storage/test_cleaner.py",),
    ),
)
