"""Renders the table of metrics in `docs/monitoring.md` from the catalogue.

`python -m moldau.metrics.reference docs/monitoring.md` writes it between two marks of the page. A
test fails while the committed page differs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from moldau.metrics.catalogue import CATALOGUE
from moldau.metrics.exposition import Metric

BEGIN = "<!-- metrics: written by python -m moldau.metrics.reference -->"
END = "<!-- end of metrics -->"


def render_table() -> str:
    lines = ["| metric | labels | what it is | in Kafka |", "|---|---|---|---|"]
    lines += [_row(metric) for metric in CATALOGUE]
    return "\n".join(lines)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{one}`" for one in metric.labels)
    kafka = f"`{metric.jmx}`" if metric.jmx else ""
    return f"| `{metric.sample_name}` ({metric.kind.value}) | {labels} | {metric.help} | {kafka} |"


def put_table(page: str) -> str:
    """The page with the table of now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{render_table()}\n{END}{after}"


def main() -> None:
    page = Path(sys.argv[1])
    page.write_text(put_table(page.read_text()))


if __name__ == "__main__":
    main()
