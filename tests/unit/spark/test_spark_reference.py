from __future__ import annotations

from pathlib import Path

from moldau.spark import reference
from moldau.spark.options import SourceOptions

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def test_the_committed_table_is_the_rendered_one() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert reference.BEGIN in page
    assert page == reference.renew(page), "run: python -m moldau.spark.reference docs/spark.md"


def test_every_option_has_a_row_with_its_default() -> None:
    table = reference.render()
    assert all(f"| `{name}` |" in table for name in SourceOptions.declarations())
    assert "| `failOnDataLoss` | `true` |" in table
