"""A scrape of much is made in slices, whatever changes meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.monitoring.collector import Sources, collect_broker
from moldau.broker.monitoring.group_lag import Lag
from moldau.metrics.exposition import Exposition, Metric
from moldau.metrics.figures import MOST_TOPICS, BrokerFigures

PAIRS = 2000
MOST_PER_TURN = 400


class Watched(Exposition):
    """Counts samples by the turn of the loop in which they were added."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.added: Counter[int] = Counter()

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        self.added[self.turn] += 1
        super().add(metric, value, *labels)


def sources_of(bench: HandlerBench) -> Sources:
    lags = {(f"g{number}", "clicks"): Lag(number, 0.5) for number in range(PAIRS)}
    return Sources(
        services=bench.services,
        connections=dict,
        lags=SimpleNamespace(lags=lags),  # type: ignore[arg-type]
        lease_end=lambda: 1e9,
        coordination_seconds=lambda: None,
    )


def test_no_turn_of_the_loop_has_more_than_a_few_hundred_samples() -> None:
    async def story(bench: HandlerBench) -> None:
        figures, out = BrokerFigures(), Watched()
        for number in range(MOST_TOPICS + 500):
            figures.traffics.of(f"t{number}").bytes_in += 1

        async def turning() -> None:
            while True:
                out.turn += 1
                figures.traffics.forget(f"t{out.turn}")  # topics come and go meanwhile
                figures.traffics.of(f"new-{out.turn}")
                await asyncio.sleep(0)

        task = asyncio.create_task(turning())
        await collect_broker(sources_of(bench), figures, out)
        task.cancel()
        assert sum(out.added.values()) > 6 * MOST_TOPICS + 2 * PAIRS
        assert max(out.added.values()) <= MOST_PER_TURN
        text = "".join(out.pieces(openmetrics=False))
        topics = [line for line in text.splitlines() if line.startswith("moldau_topic_bytes_in")]
        assert len(topics) <= MOST_TOPICS + 1

    with_broker(story)
