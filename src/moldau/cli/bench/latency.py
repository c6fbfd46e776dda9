"""`moldau bench latency`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.bench.options import LoadOptions, RoundOptions
from moldau.cli.option_groups import with_option_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.cli.bench.figures import Figures


@with_option_groups
def latency(
    options: LoadOptions,
    run: RoundOptions,
    rate: Annotated[float, typer.Option(min=0.1, metavar="N", help="Records per second.")] = 1000.0,
) -> None:
    """Measure how long a record takes from its producer to a consumer, at a steady rate."""
    from moldau.cli.bench.loads import bench_topic, measure_latency

    load = options.to_load()

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        async with bench_topic(cluster, load) as name:
            return await measure_latency(cluster, name, load, on_progress, records_per_second=rate)

    run.run(measure, counted="records")
