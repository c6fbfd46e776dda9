"""The figures of a run, kept beside its checkpoint for people and for Prometheus. A shell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

from moldau.spark.pipeline.durable_files import find_text
from moldau.spark.pipeline.rules.progress import QueryProgress, SetAside, render_metrics

RunState = Literal["running", "finished", "stopped", "failed"]

_PROGRESS = "progress.json"
_METRICS = "progress.prom"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run at one moment."""

    pipeline: str
    state: RunState
    master: str
    started_ms: int
    updated_ms: int
    queries: tuple[QueryProgress, ...]
    error: str | None = None

    def to_document(self) -> dict[str, object]:
        document = asdict(self)
        document["queries"] = [
            {**asdict(one), "rows_per_second": round(one.rows_per_second, 1)}
            for one in self.queries
        ]
        return document


def write_report(folder: Path, report: RunReport) -> None:
    """Keep the figures; a crash of the machine may cost them, nothing else."""
    _put(folder / _PROGRESS, json.dumps(report.to_document(), indent=1))
    text = render_metrics(
        report.pipeline,
        report.queries,
        updated_ms=report.updated_ms,
        is_running=report.state == "running",
    )
    _put(folder / _METRICS, text)


def find_report(folder: Path) -> RunReport | None:
    """What the last run kept, or None."""
    text = find_text(folder / _PROGRESS)
    if text is None:
        return None
    document = json.loads(text)
    queries: Sequence[dict[str, object]] = document.pop("queries")
    return RunReport(queries=tuple(_read_query(one) for one in queries), **document)


def _read_query(document: dict[str, object]) -> QueryProgress:
    """What another version wrote may lack figures, or have others."""
    known = {one.name for one in fields(QueryProgress)} - {"set_aside"}
    kept = {key: value for key, value in document.items() if key in known}
    found = document.get("set_aside")
    set_aside = SetAside(**found) if isinstance(found, dict) else SetAside()
    return QueryProgress(set_aside=set_aside, **kept)  # type: ignore[arg-type]  # written by `to_document`


def _put(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)
