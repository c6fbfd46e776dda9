"""Settings of a topic or a broker: what they are, where they come from, and how to change them."""

from __future__ import annotations

from nicegui import ui

from moldau.client.admin_values import ConfigResource
from moldau.console.data.topics import change_config, read_configs
from moldau.console.pages.frame import Frame
from moldau.console.pages.widgets import LoadedPage, PagedTable, TableColumn, confirm, opened_dialog
from moldau.console.rules.paging import PageRequest, cut_page
from moldau.console.rules.topic_rows import (
    ConfigEdit,
    ConfigRow,
    choose_configs,
    plan_edit,
    plan_removal,
)

_COLUMNS = (
    TableColumn(name="name", label="Setting", kind="open"),
    TableColumn(name="value", label="Value", kind="mono"),
    TableColumn(name="source", label="From", wide=True),
    TableColumn(name="fallback", label="Otherwise", kind="mono", wide=True),
)


class ConfigPanel:
    """A table of settings; opening one shows its documentation, and edits it where that may be."""

    def __init__(self, frame: Frame, resource: ConfigResource) -> None:
        self._frame = frame
        self._resource = resource
        self._rows: list[ConfigRow] = []
        self._only_set = False
        with ui.element("section").classes("m-card"):
            ui.label("Settings").classes("m-title")
            self._table = PagedTable(
                frame,
                _COLUMNS,
                self._load,
                empty="No setting is like that",
                search="Find a setting",
            )
            self._table.on_open(self._open)
            with self._table.toolbar:
                ui.checkbox("only what was set", on_change=lambda e: self._choose(bool(e.value)))

    async def refresh(self) -> None:
        self._rows = await read_configs(self._frame.console.cluster, self._resource)
        await self._table.refresh()

    async def _choose(self, only_set: bool) -> None:
        self._only_set = only_set
        await self._table.reload()

    async def _load(self, request: PageRequest) -> LoadedPage:
        chosen = choose_configs(self._rows, request.search, only_set=self._only_set)
        page = cut_page(chosen, request)
        rows: list[dict[str, object]] = [
            {
                "id": row.name,
                "name": row.name,
                "value": row.value,
                "source": row.source,
                "fallback": "" if not row.is_set else row.fallback,
            }
            for row in page.rows
        ]
        return LoadedPage(rows, page.total, page.number)

    async def _open(self, name: str) -> None:
        row = next((one for one in self._rows if one.name == name), None)
        if row is None:
            return
        with opened_dialog(row.name) as dialog:
            if row.documentation:
                ui.label(row.documentation).classes("m-prose")
            ui.label(f"From: {row.source}").classes("m-faint")
            if row.is_set and row.fallback is not None:
                ui.label(f"Without it: {row.fallback or '(empty)'}").classes("m-faint")
            value = ui.input("Value", value=row.value).props("outlined dense").classes("m-full")
            may_change = row.is_editable and self._frame.console.may_change
            value.set_enabled(may_change)
            with ui.element("div").classes("m-buttons"):
                ui.button("Close", on_click=dialog.close).props("flat")
                if may_change and row.is_set:
                    ui.button(
                        "Remove", on_click=lambda: self._change(dialog, plan_removal(row))
                    ).props("flat color=negative")
                if may_change:
                    ui.button(
                        "Set", on_click=lambda: self._change(dialog, plan_edit(row, value.value))
                    )
            if not row.is_editable:
                ui.label("This one cannot be changed while the broker runs.").classes("m-faint")

    async def _change(self, dialog: ui.dialog, edit: ConfigEdit | None) -> None:
        if edit is None:
            ui.notify("That is what it is already")
            return
        if not await confirm(f"Change {self._resource}?", edit.message, "Change"):
            return
        work = change_config(self._frame.console.cluster, self._resource, edit)
        if await self._frame.attempt(work, f"{edit.change.name} was changed"):
            dialog.close()
            await self._frame.attempt(self.refresh())
