"""The pipelines that the console was told of, as `moldau pipeline status` knows them."""

from __future__ import annotations

import asyncio

from nicegui import ui

from moldau.console.pages.frame import heading, page_frame
from moldau.console.settings import PipelineView
from moldau.ops.formatting import count_text

_NONE = (
    "A pipeline is a file and a checkpoint on a disk. Name the file, on the machine that has both: "
    "moldau console --pipeline clicks.yaml"
)


def register() -> None:
    @ui.page("/pipelines", response_timeout=15)
    async def show_pipelines() -> None:
        async with page_frame("Pipelines", "/pipelines") as frame:
            console = frame.console
            heading("Pipelines", "Whether they run, and how far behind they are")
            statuses = console.settings.pipelines
            if statuses is None:
                with ui.element("section").classes("m-card m-empty"):
                    ui.icon("account_tree")
                    ui.label(_NONE).classes("m-prose")
                return
            place = ui.element("div").classes("m-stack")
            shown: tuple[PipelineView, ...] = ()

            async def refresh() -> None:
                nonlocal shown
                found = tuple(await asyncio.to_thread(statuses))
                if found != shown:
                    shown = found
                    place.clear()
                    with place:
                        for one in found:
                            _show(one)

            frame.every(5.0, refresh)


def _show(view: PipelineView) -> None:
    with ui.element("section").classes("m-card"):
        with ui.element("div").classes("m-field-head"):
            ui.label(view.name).classes("m-title")
            severity = 2 if view.failure else 0 if view.is_running else 3
            ui.label(view.failure or view.state).classes(f"m-state m-sev-{severity}")
        ui.label(view.file).classes("m-faint m-mono")
        if view.last_run:
            ui.label(f"Last run: {view.last_run}").classes("m-faint")
        with ui.element("div").classes("m-headers"):
            for query in view.queries:
                ui.label(query.name).classes("m-mono")
                text = f"{count_text(query.lag)} records behind"
                ui.label(f"{text}; {query.set_aside}" if query.set_aside else text)
