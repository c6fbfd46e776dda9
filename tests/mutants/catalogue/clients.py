"""Producers: the order and the numbers of batches, whatever comes back."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_QUEUE = "moldau.client.producer.rules.record_accumulator"
_UNIT = "unit/client/rules"
_STORIES = f"{_UNIT}/test_producer_machine.py"
_MODEL = f"{_UNIT}/test_producer_machine_model.py"

MUTANTS = (
    Mutant(
        name="a-batch-is-numbered-anew-each-time-it-is-sent",
        rule="SEQ-1",
        breaks="a batch whose answer got lost comes again under a number of its own",
        edits=(Edit(_QUEUE, "PartitionQueue.drain_batch", "batch.identity is None"),),
        seeds=Seeds(count=10),
        tests=(
            f"{_STORIES}::test_a_lost_answer_is_given_again_when_the_batch_comes_again",
            _MODEL,
        ),
    ),
)
