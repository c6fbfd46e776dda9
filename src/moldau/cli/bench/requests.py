"""`moldau bench requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.bench.options import RoundOptions, Seconds
from moldau.cli.option_groups import with_option_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.cli.bench.figures import Figures


@with_option_groups
def requests(
    run: RoundOptions,
    in_flight: Annotated[
        int, typer.Option(min=1, metavar="N", help="Requests under way at once.")
    ] = 1,
    seconds: Seconds = 10.0,
) -> None:
    """Measure small requests on one connection, one after the other or several at once."""
    from moldau.cli.bench.loads import Load, measure_requests

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        load = Load(seconds=seconds)
        return await measure_requests(cluster, load, on_progress, in_flight=in_flight)

    run.run(measure, counted="requests")
