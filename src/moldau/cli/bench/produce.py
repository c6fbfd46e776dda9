"""`moldau bench produce`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.cli.bench.options import LoadOptions, RoundOptions
from moldau.cli.option_groups import with_option_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.cli.bench.figures import Figures


@with_option_groups
def produce(options: LoadOptions, run: RoundOptions) -> None:
    """Measure how fast records go in, and how long their confirmation takes."""
    from moldau.cli.bench.loads import bench_topic, measure_produce

    load = options.to_load()

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        async with bench_topic(cluster, load) as name:
            return await measure_produce(cluster, name, load, on_progress)

    run.run(measure, counted="records")
