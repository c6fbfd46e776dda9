"""What a partition expects of the next compressed batch, by the one before."""

from __future__ import annotations

import asyncio

import pytest

from moldau.clock import SystemClock
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch
from moldau.replication.incoming_batches import IncomingBatches, Unpacker
from moldau.workers import InlineWorkers

NOW_MS = 1_700_000_000_000


def batch_of(size_bytes: int, codec: Codec) -> memoryview:
    return memoryview(build_batch([(NOW_MS, None, bytes(size_bytes), ())], codec=codec))


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_unfolds_to_much_costs_the_next_one_a_worker_and_no_more(
    codec: Codec,
) -> None:
    async def story() -> None:
        options = TopicOptions.resolve({}, BrokerOptions.resolve({}))
        incoming = IncomingBatches(options, Unpacker(InlineWorkers(), SystemClock()))
        honest = memoryview(
            build_batch([(NOW_MS, None, bytes(range(256)) * 160, ())], codec=Codec.LZ4)
        )
        assert incoming.check(honest, NOW_MS) is not None
        bomb = batch_of(60 << 20, codec)
        assert incoming.check(bomb, NOW_MS) is None
        await incoming.check_in_worker(bomb, NOW_MS)
        large = batch_of(900_000, Codec.LZ4)
        while incoming.check(large, NOW_MS) is None:  # at first as if it were one, too
            await incoming.check_in_worker(large, NOW_MS)
        assert incoming.check(honest, NOW_MS) is not None

    asyncio.run(story())
