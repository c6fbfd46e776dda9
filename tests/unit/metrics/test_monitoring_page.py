"""The page names every metric, as the catalogue has it."""

from __future__ import annotations

from pathlib import Path

from moldau.metrics.catalogue import put_table

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"


def test_the_table_is_the_catalogue() -> None:
    page = PAGE.read_text()
    assert put_table(page) == page, "run: python -m moldau.metrics.catalogue docs/monitoring.md"
