"""How pipelines are, as a page shows it. Values: whoever knows pipelines hands them in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineQueryView:
    """One query: what it has not read yet, and what it put aside."""

    name: str
    lag: int
    set_aside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """One pipeline at one moment; `failure` stands where it could not be looked at."""

    name: str
    file: str
    state: str
    is_running: bool = False
    last_run: str = ""
    queries: tuple[PipelineQueryView, ...] = ()
    failure: str = ""
