"""The groups, and the page of one: members, what they read, lag, and a reset with preview."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from moldau.client.rules.offsets import PlannedReset
from moldau.console.cluster import EXPECTED
from moldau.console.groups import (
    PLACES,
    GroupRow,
    SeenGroup,
    assignment_text,
    choose_groups,
    choose_lag_rows,
    complete_rows,
    delete_group,
    find_ages,
    group_kind,
    group_severity,
    list_groups,
    members_text,
    parse_target,
    perform_reset,
    plan_group_reset,
    read_group,
)
from moldau.console.pages.widgets import (
    Frame,
    LineChart,
    PagedTable,
    Row,
    TableColumn,
    confirm,
    group_path,
    heading,
    opened_dialog,
    page_frame,
)
from moldau.console.paging import Page, PageRequest, cut_page
from moldau.console.records import Browsing
from moldau.ops.formatting import UNKNOWN, count_text, duration_text, plural

_COLUMNS = (
    TableColumn(name="name", label="Group", kind="link", sortable=True),
    TableColumn(name="kind", label="Kind", sortable=True, wide=True),
    TableColumn(name="state", label="State", kind="state", sortable=True),
    TableColumn(name="members", label="Members", kind="number"),
    TableColumn(name="lag", label="Lag", kind="number"),
)


def register_groups() -> None:
    @ui.page("/groups", response_timeout=15)
    async def show_groups() -> None:
        async with page_frame("Groups", "/groups") as frame:
            console = frame.console
            heading("Groups", "Who reads, and how far behind they are")

            async def load(request: PageRequest) -> Page[Row]:
                found = await list_groups(console.cluster)
                page = cut_page(choose_groups(found, request), request)
                rows = await complete_rows(console.cluster, page.rows)
                return page.with_rows([_to_row(row) for row in rows])

            with ui.element("section").classes("m-card"):
                table = PagedTable(
                    frame, _COLUMNS, load, empty="No groups found", search="Find a group"
                )
            frame.every(3.0, table.refresh)


def _to_row(row: GroupRow) -> dict[str, object]:
    return {
        "id": row.name,
        "name": row.name,
        "href": group_path(row.name),
        "kind": row.kind,
        "state": row.state,
        "severity": group_severity(row.state),
        "members": count_text(row.members),
        "lag": count_text(row.lag),
    }


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


def register_group() -> None:
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
        self._line.set_text(_describe_group(view))
        if view.lag is not None:
            self._lag.set_text(count_text(view.lag))
            self._chart.show(self._frame.console.lags.add(self._group_id, view.lag))
        await self._members.refresh()
        await self._partitions.refresh()

    async def _load_members(self, request: PageRequest) -> Page[Row]:
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
        return page.with_rows(rows)

    async def _load_partitions(self, request: PageRequest) -> Page[Row]:
        if self._view is None:
            return Page((), 0)
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
                "end": count_text(one.log_end_offset),
                "lag": count_text(one.lag),
                "age": duration_text(ages.get(one.partition)) if one.lag else "",
                "member": members_text(one.members) or UNKNOWN,
            }
            for one in page.rows
        ]
        return page.with_rows(rows)

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


def _describe_group(view: SeenGroup) -> str:
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


_ALL = "all that it has read"
_RESET_COLUMNS = (
    TableColumn(name="partition", label="Partition"),
    TableColumn(name="before", label="Now", kind="number"),
    TableColumn(name="after", label="Then", kind="number"),
    TableColumn(name="change", label="Change", kind="number"),
)


def open_reset(
    frame: Frame, group_id: str, view: SeenGroup, on_done: Callable[[], Awaitable[None]]
) -> None:
    topics = sorted({row.partition.topic for row in view.rows})
    planned: Sequence[PlannedReset] = ()
    with opened_dialog(f"Reset {group_id}", is_wide=True) as dialog:
        ui.label(_advice(view)).classes("m-prose m-faint")
        with ui.element("div").classes("m-row"):
            topic = ui.select([_ALL, *topics], value=_ALL, label="Topic")
            place = ui.select(list(PLACES), value=PLACES[0], label="To")
            number = ui.input("Offset, time or count", placeholder="10m, 2030-01-31T12:00, -100")
            for box in (topic, place, number):
                box.props("outlined dense stack-label").classes("m-grow")

        async def load(request: PageRequest) -> Page[Row]:
            return cut_page(planned, request).map(_to_reset_row)

        async def look() -> None:
            nonlocal planned
            target = parse_target(place.value, number.value or "", frame.console.clock.now_ms())
            chosen = None if topic.value == _ALL else topic.value
            planned = await plan_group_reset(
                frame.console.cluster, group_id, chosen, target, is_shared=view.is_shared
            )
            await table.reload()
            go_on.set_enabled(bool(planned))

        async def perform() -> None:
            refused = await perform_reset(
                frame.console.cluster, group_id, planned, is_shared=view.is_shared
            )
            for error in refused.values():
                raise error
            dialog.close()
            await on_done()

        table = PagedTable(
            frame,
            _RESET_COLUMNS,
            load,
            empty="Preview says where each goes",
            rows_per_page=10,
        )
        with ui.element("div").classes("m-buttons"):
            ui.button("Cancel", on_click=dialog.close).props("flat")
            ui.button("Preview", on_click=lambda: frame.attempt(look())).props("flat")
            go_on = ui.button(
                "Reset", on_click=lambda: frame.attempt(perform(), f"{group_id} was reset")
            )
            go_on.set_enabled(False)


def _advice(view: SeenGroup) -> str:
    text = "The group must have no members when this is done."
    if view.member_count:
        text = f"The group has {plural(view.member_count, 'member')}: stop them first. {text}"
    if view.is_shared:
        text += " What is under way, and how often it was delivered, is forgotten."
    return text


def _to_reset_row(row: PlannedReset) -> dict[str, object]:
    change = UNKNOWN if row.before is None else f"{row.after - row.before:+,}"
    return {
        "id": str(row.partition),
        "partition": str(row.partition),
        "before": count_text(row.before),
        "after": count_text(row.after),
        "change": change,
    }
