"""`moldau bench requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.bench.options import Against, Rounds, Seconds
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.cli.bench.figures import Figures


def requests(
    in_flight: Annotated[
        int, typer.Option(min=1, metavar="N", help="Requests under way at once.")
    ] = 1,
    seconds: Seconds = 10.0,
    rounds: Rounds = 1,
    against: Against = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Measure small requests on one connection, one after the other or several at once."""
    from moldau.cli.bench.loads import Load, measure_requests
    from moldau.cli.bench.run import run_rounds

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        load = Load(seconds=seconds)
        return await measure_requests(cluster, load, on_progress, in_flight=in_flight)

    run_rounds(
        measure,
        bootstrap=bootstrap,
        against=against,
        rounds=rounds,
        counted="requests",
        as_json=as_json,
    )
