"""Producers: the order and the numbers of batches, whatever comes back."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_QUEUE = "moldau.client.rules.partition_queue"
_BATCHES = "moldau.client.rules.producer_batches"
_VERDICTS = "moldau.client.rules.verdicts"
_MACHINE = "moldau.client.rules.producer_machine"
_CALLS = "moldau.client.rules.transaction_calls"
_UNIT = "unit/client/rules"
_STORIES = f"{_UNIT}/test_producer_machine.py"
_TRANSACTIONS = f"{_UNIT}/test_producer_transaction.py"
_MODEL = f"{_UNIT}/test_producer_machine_model.py"

MUTANTS = (
    Mutant(
        name="a-batch-is-numbered-anew-each-time-it-is-sent",
        rule="SEQ-1",
        breaks="a batch whose answer got lost comes again under a number of its own",
        edits=(
            Edit(
                _QUEUE,
                "if newest is not None and batch.identity is None:",
                "if newest is not None:",
            ),
        ),
        seeds=Seeds(count=10),
        tests=(
            f"{_STORIES}::test_a_lost_answer_is_given_again_when_the_batch_comes_again",
            _MODEL,
        ),
    ),
    Mutant(
        name="a-batch-that-comes-back-goes-to-the-end",
        rule="SEQ-1",
        breaks="a batch that is sent again is behind those that were sent after it",
        edits=(
            Edit(
                _QUEUE,
                "            if other.first_number > batch.first_number:\n"
                "                break\n"
                "            place += 1\n",
                "            place += 1\n",
            ),
        ),
        tests=(f"{_UNIT}/test_partition_queue.py::test_one_that_comes_back_takes_its_old_place",),
    ),
    Mutant(
        name="batches-leave-while-others-come-back",
        rule="SEQ-1",
        breaks="after one came back, the next leave before all under way have come back",
        edits=(
            Edit(_QUEUE, "            not self._is_recovering\n            and ", "            "),
        ),
        tests=(f"{_UNIT}/test_partition_queue.py",),
    ),
    Mutant(
        name="a-new-epoch-is-the-old-one",
        rule="SEQ-1",
        breaks="after a gap the numbers begin at 0 again, in the same epoch",
        edits=(
            Edit(
                _BATCHES,
                "ProducerIdentity(newest.id, self.identity.epoch + 1)",
                "ProducerIdentity(newest.id, self.identity.epoch)",
            ),
        ),
        tests=(
            f"{_UNIT}/test_producer_batches.py::"
            "test_a_restart_begins_the_next_epoch_and_numbers_what_waits_from_0",
        ),
    ),
    Mutant(
        name="several-batches-begin-an-epoch",
        rule="SEQ-4",
        breaks="more than one batch is under way before the first of an epoch was confirmed",
        edits=(Edit(_BATCHES, "return self._is_known or self.identity is None", "return True"),),
        tests=(f"{_STORIES}::test_the_first_batch_goes_alone_and_the_next_five_together",),
    ),
    Mutant(
        name="a-gap-begins-an-epoch-at-once",
        rule="SEQ-1",
        breaks="a batch that is out of order because one before it comes again begins a new epoch",
        edits=(
            Edit(
                _VERDICTS,
                "restart_numbers=is_oldest)",
                "restart_numbers=True)",
            ),
        ),
        tests=(f"{_UNIT}/test_verdicts.py",),
    ),
    Mutant(
        name="a-commit-does-not-wait-for-its-batches",
        rule="TXN-1",
        breaks="the coordinator is asked to commit while batches of the transaction are under way",
        edits=(
            Edit(
                _CALLS,
                "if wants_commit and is_still and is_empty:",
                "if wants_commit:",
            ),
        ),
        tests=(
            f"{_TRANSACTIONS}::test_a_commit_waits_for_all_batches_and_then_for_the_coordinator",
        ),
    ),
    Mutant(
        name="an-abort-does-not-wait-for-what-is-under-way",
        rule="TXN-1",
        breaks="a batch that is under way when its transaction is aborted may join the next one",
        edits=(
            Edit(
                _CALLS,
                "elif wants_abort and is_still and not transactions.is_asking:",
                "elif wants_abort and not transactions.is_asking:",
            ),
        ),
        tests=(f"{_TRANSACTIONS}::test_a_record_that_is_not_delivered_leaves_only_the_abort",),
    ),
    Mutant(
        name="a-new-epoch-of-a-transaction-goes-on-counting",
        rule="SEQ-1",
        breaks="the numbers of a partition go on when the coordinator has given another epoch",
        edits=(
            Edit(
                _BATCHES,
                "if self.identity is not None and self.identity != newest:\n"
                "            self.next_sequence = 0\n",
                "if self.identity is not None and self.identity != newest:\n",
            ),
        ),
        tests=(
            f"{_TRANSACTIONS}::"
            "test_each_transaction_of_version_2_is_numbered_from_0_in_its_own_epoch",
        ),
    ),
)
