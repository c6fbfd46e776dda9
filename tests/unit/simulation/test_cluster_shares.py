"""What a share coordinator's log has to say of what was confirmed."""

from __future__ import annotations

from uuid import UUID

from moldau.coordinators.shares.rules.records import (
    DeliveryState,
    SharePartitionKey,
    ShareUpdate,
    StateBatch,
    UpdateRecord,
    encode_share_state,
)
from moldau.records.batch_header import read_header
from moldau.records.record_batch import build_batch
from moldau.simulation.history import StoredBatch
from moldau.simulation.share_groups import find_missing

KEY = SharePartitionKey("s", UUID(int=1), 0)
OTHER = SharePartitionKey("s", UUID(int=1), 1)
DONE = (DeliveryState.ACKNOWLEDGED,)


def log_of(*updates: tuple[SharePartitionKey, int, tuple[StateBatch, ...]]) -> list[StoredBatch]:
    batches = []
    for number, (key, start, states) in enumerate(updates):
        record = UpdateRecord(key, ShareUpdate(0, 0, start, -1, states))
        encoded = encode_share_state(record)
        batch = bytes(build_batch([(0, *encoded, ())], base_offset=number))
        assert read_header(batch).next_offset == number + 1
        batches.append(StoredBatch(number, number + 1, 0, batch))
    return batches


def test_what_is_before_the_start_or_in_a_batch_is_said() -> None:
    log = log_of(
        (KEY, 2, ()),
        (KEY, 2, (StateBatch(4, 5, DeliveryState.ACKNOWLEDGED, 1),)),
        (KEY, 6, ()),
    )
    assert find_missing(log, KEY, [1, 4], DONE) == (set(), 2)
    assert find_missing(log, KEY, [1, 3, 4], DONE) == (set(), 3)


def test_what_others_are_told_of_or_was_only_released_is_missing() -> None:
    log = log_of(
        (OTHER, 9, ()),
        (KEY, 0, (StateBatch(4, 4, DeliveryState.AVAILABLE, 1),)),
    )
    assert find_missing(log, KEY, [3, 4], DONE) == ({3, 4}, 0)
