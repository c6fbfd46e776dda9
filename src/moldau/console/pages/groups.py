"""Groups of every kind; members and lag are asked for the page that is shown."""

from __future__ import annotations

from nicegui import ui

from moldau.console.data.groups import complete_rows, list_groups
from moldau.console.pages.frame import group_path, heading, page_frame
from moldau.console.pages.tables import LoadedPage, PagedTable, TableColumn
from moldau.console.rules.group_rows import GroupRow, choose_groups, group_severity
from moldau.console.rules.paging import PageRequest, cut_page
from moldau.console.rules.wording import count_text

_COLUMNS = (
    TableColumn(name="name", label="Group", kind="link", sortable=True),
    TableColumn(name="kind", label="Kind", sortable=True, wide=True),
    TableColumn(name="state", label="State", kind="state", sortable=True),
    TableColumn(name="members", label="Members", kind="number"),
    TableColumn(name="lag", label="Lag", kind="number"),
)


def register() -> None:
    @ui.page("/groups", response_timeout=15)
    async def show_groups() -> None:
        async with page_frame("Groups", "/groups") as frame:
            console = frame.console
            heading("Groups", "Who reads, and how far behind they are")

            async def load(request: PageRequest) -> LoadedPage:
                found = await list_groups(console.cluster)
                page = cut_page(choose_groups(found, request), request)
                rows = await complete_rows(console.cluster, page.rows)
                return LoadedPage([_to_row(row) for row in rows], page.total, page.number)

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
