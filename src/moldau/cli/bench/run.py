"""Runs a measurement in rounds, against one cluster or against two in turns, and shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from moldau.cli.bench.figures import Figures, middle, show_value, title_of
from moldau.cli.log_lines import warnings_shown
from moldau.cli.output import Column, note, print_document, print_table
from moldau.cli.progress import Progress
from moldau.cli.session import made_for_millions

Measure = Callable[[str, Callable[[int, int], None]], Awaitable[Figures]]
"""One round against the brokers that are named; the other is told how far it is."""


def run_rounds(
    measure: Measure,
    *,
    bootstrap: str,
    against: str | None,
    rounds: int,
    counted: str,
    as_json: bool,
) -> None:
    """Measure, in turns where there are two clusters: what else goes on hits both alike."""
    clusters = [bootstrap] if against is None else [bootstrap, against]
    found: dict[str, list[Figures]] = {one: [] for one in clusters}
    with warnings_shown(), made_for_millions():
        for number in range(rounds):
            for cluster in clusters:
                progress = Progress(has_end=True)
                figures = asyncio.run(_measure(measure, cluster, progress))
                found[cluster].append(figures)
                if rounds > 1 or against is not None:
                    rate = f"{figures.per_second:,.0f} {counted}/s"
                    note(f"round {number + 1} of {rounds}, {cluster}: {rate}")
    _show(found, counted, as_json)


async def _measure(measure: Measure, cluster: str, progress: Progress) -> Figures:
    try:
        return await measure(cluster, lambda count, size_bytes: progress.show(count, size_bytes))
    finally:
        progress.clear()


def _show(found: Mapping[str, Sequence[Figures]], counted: str, as_json: bool) -> None:
    middles = {cluster: middle(rounds) for cluster, rounds in found.items()}
    clusters = list(found)
    names = list(middles[clusters[0]])
    ratios: dict[str, float] = {}
    if len(clusters) > 1:
        first, other = (middles[cluster] for cluster in clusters)
        ratios = {name: first[name] / other[name] for name in names if other.get(name)}
    if as_json:
        print_document(
            {
                "clusters": [
                    {
                        "bootstrap": cluster,
                        **middles[cluster],
                        "rounds": [
                            {"count": one.count, "seconds": one.seconds, **one.values()}
                            for one in found[cluster]
                        ],
                    }
                    for cluster in clusters
                ],
                **({"ratio": ratios} if ratios else {}),
            }
        )
        return
    columns = [Column(""), *(Column(title_of(name, counted), is_number=True) for name in names)]
    rows = [
        (cluster, *(show_value(name, middles[cluster][name]) for name in names))
        for cluster in clusters
    ]
    if ratios:
        rows.append(("ratio", *(f"{ratios[name]:.2f}" if name in ratios else "" for name in names)))
    print_table(columns, rows)
