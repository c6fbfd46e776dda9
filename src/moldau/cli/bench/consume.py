"""`moldau bench consume`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.bench.options import LoadOptions, RoundOptions
from moldau.cli.option_groups import with_option_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.cli.bench.figures import Figures


@with_option_groups
def consume(
    options: LoadOptions,
    run: RoundOptions,
    decode: Annotated[
        bool, typer.Option("--decode", help="Make records of the batches, as programs do.")
    ] = False,
) -> None:
    """Measure how fast records come out.

    Without --topic a topic is filled first, for as long as a round takes.
    """
    from moldau.cli.bench.loads import bench_topic, measure_consume, measure_produce

    load = options.to_load()

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        async with bench_topic(cluster, load) as name:
            if load.topic is None:
                await measure_produce(cluster, name, load, on_progress)
            return await measure_consume(cluster, name, load, on_progress, decode=decode)

    run.run(measure, counted="records")
