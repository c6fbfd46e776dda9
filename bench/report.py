"""What a benchmark hands back, and how it is shown: tables for people, JSON for machines."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.systems import SYSTEMS
from moldau import __version__
from moldau.records.codec import IMPLEMENTATION

if TYPE_CHECKING:
    from bench.compare import Found

Cell = str | int | float | None


@dataclass(slots=True, kw_only=True)
class Table:
    """Rows of figures. Cells keep the raw numbers; they are rounded only to be shown."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    note: str = ""

    def add(self, *cells: Cell) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(cells)

    def render(self) -> str:
        """As a table in Markdown, which is readable in a terminal as well."""
        lines = [tuple(self.columns), *(tuple(map(show, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        is_number = [
            all(not isinstance(row[i], str) for row in self.rows) for i in range(len(widths))
        ]
        ruler = "|".join(
            "-" * (width + 1) + (":" if right else "-")
            for width, right in zip(widths, is_number, strict=True)
        )
        shown = [_line(line, widths, is_number) for line in lines]
        shown.insert(1, f"|{ruler}|")
        note = f"\n{self.note}\n" if self.note else ""
        return f"**{self.title}**\n\n" + "\n".join(shown) + "\n" + note


def _line(cells: Iterable[str], widths: Iterable[int], is_number: Iterable[bool]) -> str:
    padded = (
        cell.rjust(width) if right else cell.ljust(width)
        for cell, width, right in zip(cells, widths, is_number, strict=True)
    )
    return "| " + " | ".join(padded) + " |"


def show(cell: Cell) -> str:
    """Three significant digits or so."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 100:
        return f"{cell:,.0f}"
    if abs(cell) >= 10:
        return f"{cell:.1f}"
    return f"{cell:.2f}" if abs(cell) >= 0.1 or not cell else f"{cell:.3f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One figure of the design's table, and what was measured for it."""

    figure: str
    to_reach: float
    measured: float
    at_most: bool = True

    @property
    def verdict(self) -> str:
        ratio = self.measured / self.to_reach if self.to_reach else 0.0
        reached = ratio <= 1 if self.at_most else ratio >= 1
        return "reached" if reached else f"missed: {ratio:.2f} of it"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """All that one benchmark found."""

    tables: list[Table]
    goals: list[Goal] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return {
            "tables": [
                {
                    "title": table.title,
                    "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows],
                    "note": table.note,
                }
                for table in self.tables
            ],
            "goals": [
                {
                    "figure": goal.figure,
                    "to_reach": goal.to_reach,
                    "measured": goal.measured,
                    "at_most": goal.at_most,
                }
                for goal in self.goals
            ],
        }


def render_goals(goals: Sequence[Goal]) -> str:
    table = Table(
        title="The design's table",
        columns=("figure", "to reach", "measured", "verdict"),
    )
    for goal in goals:
        sign = "<=" if goal.at_most else ">="
        table.add(goal.figure, f"{sign} {show(goal.to_reach)}", goal.measured, goal.verdict)
    return table.render()


def describe_machine() -> dict[str, Cell]:
    """Where the figures come from. The load tells whether the machine was quiet."""
    return {
        "system": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": sys.version.split()[0],
        "moldau": __version__,
        "codec": IMPLEMENTATION,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 not a real file
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


# --- rows of systems --------------------------------------------------------------------------

FIGURES_BEGIN = "<!-- figures: written by python -m bench --write -->"
FIGURES_END = "<!-- end of figures -->"


def found_table(found: Sequence[Found]) -> Table:
    """A line for each figure of each row, a column for each system."""
    titles: dict[str, None] = {}
    for one in found:
        for name in (*one.samples, *one.failures):
            titles[SYSTEMS[name].title] = None
    table = Table(
        title="Side by side: median of interleaved samples (± half of the range)",
        columns=("row", "figure", *titles, "against Kafka"),
        note="against Kafka: with a 1 GB heap; more than 1 is ahead, whatever the figure is.",
    )
    for one in found:
        for place, figure in enumerate(one.row.figures):
            cells: dict[str, Cell] = dict.fromkeys(titles)
            for name in one.failures:
                cells[SYSTEMS[name].title] = "failed"
            for name in one.samples:
                spread = one.spread(name, place)
                if spread is not None:
                    cells[SYSTEMS[name].title] = f"{show(spread.median)} ±{spread.percent:.0f} %"
            ratio = advantage(one, place)
            verdict = "" if ratio is None else f"{show(ratio)} times"
            table.add(one.row.title if not place else "", figure.name, *cells.values(), verdict)
    return table


def advantage(found: Found, place: int, peer: str = "kafka") -> float | None:
    """How many times better Moldau is in a figure than a peer; None where one is missing."""
    first = found.row.systems[0]
    variant = first.removeprefix("moldau") if first in ("moldau-3", "moldau-tls") else ""
    ours, theirs = (found.spread(f"{name}{variant}", place) for name in ("moldau", peer))
    if variant and theirs is None:
        theirs = found.spread(peer, place)
    if ours is None or theirs is None or not ours.median or not theirs.median:
        return None
    ratio = ours.median / theirs.median
    return ratio if found.row.figures[place].more_is_better else 1 / ratio


def render_found(found: Sequence[Found], left_out: Sequence[str]) -> str:
    lines = [found_table(found).render()]
    failures = [
        f"- {one.row.name}, {name}: {why}" for one in found for name, why in one.failures.items()
    ]
    if failures:
        lines += ["Failed:", "", *failures, ""]
    if left_out:
        lines += ["Left out:", "", *(f"- {line}" for line in left_out), ""]
    return "\n".join(lines)


def write_page(
    page: Path,
    found: Sequence[Found],
    left_out: Sequence[str],
    drawn: Path | None,
    machine: Mapping[str, Cell],
) -> None:
    """Put the figures between the marks of a page; the rest of it is people's."""
    where = ", ".join(f"{name} {show(value)}" for name, value in machine.items())
    repetitions = max((len(rounds) for one in found for rounds in one.samples.values()), default=0)
    parts = [
        FIGURES_BEGIN,
        f"Measured on {where}; up to {repetitions} samples each.",
        f"![How many times better than its peers Moldau is]({drawn.name})" if drawn else "",
        render_found(found, left_out).rstrip(),
        FIGURES_END,
    ]
    text = page.read_text(encoding="utf-8") if page.exists() else "# Benchmarks\n"
    written = "\n\n".join(part for part in parts if part)
    if FIGURES_BEGIN in text and FIGURES_END in text:
        before, rest = text.split(FIGURES_BEGIN, 1)
        after = rest.split(FIGURES_END, 1)[1]
        page.write_text(before + written + after, encoding="utf-8")
    else:
        page.write_text(text.rstrip() + "\n\n" + written + "\n", encoding="utf-8")
