"""One group: its members and what they read, its lag over time, and a reset with preview."""

from __future__ import annotations

from nicegui import ui

from moldau.console.data.failures import EXPECTED
from moldau.console.data.groups import SeenGroup, delete_group, find_ages, read_group
from moldau.console.pages.charts import LineChart
from moldau.console.pages.dialogs import confirm
from moldau.console.pages.frame import Frame, heading, page_frame
from moldau.console.pages.group_reset import open_reset
from moldau.console.pages.tables import LoadedPage, PagedTable, TableColumn
from moldau.console.rules.browse_links import Browsing
from moldau.console.rules.group_rows import (
    assignment_text,
    choose_lag_rows,
    group_kind,
    members_text,
)
from moldau.console.rules.paging import PageRequest, cut_page
from moldau.console.rules.wording import UNKNOWN, count_text, duration_text, plural

_LAG_COLUMNS = (
    TableColumn(name="partition", label="Partition", kind="link", sortable=True),
    TableColumn(name="committed", label="Offset", kind="number", sortable=True, wide=True),
    TableColumn(name="end", label="End", kind="number", sortable=True, wide=True),
    TableColumn(name="lag", label="Lag", kind="number", sortable=True),
    TableColumn(name="age", label="Oldest unread", kind="number"),
    TableColumn(name="member", label="Member", kind="mono", wide=True),
)
_MEMBER_COLUMNS = (
    TableColumn(name="client", label="Client", kind="mono"),
    TableColumn(name="host", label="Host", kind="mono", wide=True),
    TableColumn(name="reads", label="Reads"),
    TableColumn(name="member", label="Member", kind="mono", wide=True),
)


def register() -> None:
    @ui.page("/group", response_timeout=15)
    async def show_group(id: str) -> None:  # as it is called in the address
        async with page_frame(id, "/groups") as frame:
            page = GroupPage(frame, id)
            frame.every(2.0, page.refresh)


class GroupPage:
    """See the module. The view is asked for once in a turn; both tables are cut from it."""

    def __init__(self, frame: Frame, group_id: str) -> None:
        self._frame = frame
        self._group_id = group_id
        self._view: SeenGroup | None = None
        with ui.element("div").classes("m-head"):
            self._line = heading(group_id)
            ui.space()
            if frame.console.may_change:
                ui.button("Reset", icon="restart_alt", on_click=self._reset).props("flat")
                ui.button(icon="delete", on_click=self._delete).props(
                    'flat round color=negative aria-label="Delete group"'
                )
        with ui.element("section").classes("m-card"):
            with ui.element("div").classes("m-field-head"):
                ui.label("Lag in records").classes("m-title")
                ui.space()
                self._lag = ui.label(UNKNOWN).classes("m-figure-number")
            self._chart = LineChart("lag")
        with ui.element("section").classes("m-card"):
            ui.label("Members").classes("m-title")
            self._members = PagedTable(
                frame,
                _MEMBER_COLUMNS,
                self._load_members,
                empty="Nobody is in it",
                rows_per_page=10,
            )
        with ui.element("section").classes("m-card"):
            ui.label("Partitions").classes("m-title")
            self._partitions = PagedTable(
                frame,
                _LAG_COLUMNS,
                self._load_partitions,
                empty="Nothing was committed",
                search="Find a topic",
            )

    async def refresh(self) -> None:
        view = await read_group(self._frame.console.cluster, self._group_id)
        self._view = view
        self._line.set_text(_describe(view))
        if view.lag is not None:
            self._lag.set_text(count_text(view.lag))
            self._chart.show(self._frame.console.lags.add(self._group_id, view.lag))
        await self._members.refresh()
        await self._partitions.refresh()

    async def _load_members(self, request: PageRequest) -> LoadedPage:
        description = None if self._view is None else self._view.description
        page = cut_page(() if description is None else description.members, request)
        rows: list[dict[str, object]] = [
            {
                "id": one.member_id,
                "client": one.client_id + (f" ({one.instance_id})" if one.instance_id else ""),
                "host": one.host,
                "reads": assignment_text(one.assignment) or "nothing",
                "member": one.member_id,
            }
            for one in page.rows
        ]
        return LoadedPage(rows, page.total, page.number)

    async def _load_partitions(self, request: PageRequest) -> LoadedPage:
        if self._view is None:
            return LoadedPage((), 0)
        page = cut_page(choose_lag_rows(self._view.rows, request), request)
        try:
            ages = await find_ages(self._frame.console.cluster, page.rows)
        except EXPECTED:  # not everybody may read the records
            ages = {}
        rows: list[dict[str, object]] = [
            {
                "id": str(one.partition),
                "partition": str(one.partition),
                "href": Browsing(partition=one.partition.partition, offset=one.committed).path(
                    one.partition.topic
                ),
                "committed": count_text(one.committed),
                "end": count_text(one.end_offset),
                "lag": count_text(one.lag),
                "age": duration_text(ages.get(one.partition)) if one.lag else "",
                "member": members_text(one.members) or UNKNOWN,
            }
            for one in page.rows
        ]
        return LoadedPage(rows, page.total, page.number)

    async def _reset(self) -> None:
        if self._view is not None:
            open_reset(self._frame, self._group_id, self._view, self.refresh)

    async def _delete(self) -> None:
        details = "What it has committed is forgotten; it must have no members."
        if not await confirm(
            f"Delete group {self._group_id}?", details, "Delete", typed=self._group_id
        ):
            return
        work = delete_group(self._frame.console.cluster, self._group_id)
        if await self._frame.attempt(work, f"{self._group_id} was deleted"):
            ui.navigate.to("/groups")


def _describe(view: SeenGroup) -> str:
    group = view.description
    if group is None and view.listing is not None:
        kind = group_kind(view.listing)
        return f"{kind} · {view.listing.state.value} · members of such a group are not shown"
    if group is None:
        return "only its offsets are left"
    parts = [group.type, group.state.value, plural(len(group.members), "member")]
    if group.protocol:
        parts.append(f"assignor {group.protocol}")
    parts.append(f"coordinator {group.coordinator.id}")
    if group.epoch is not None:
        parts.append(f"epoch {group.epoch}")
    return " · ".join(parts)
