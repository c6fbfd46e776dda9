"""The partitions of a topic: who leads, who is in sync, from where to where they go."""

from __future__ import annotations

from nicegui import ui

from moldau.console.data.topics import read_partitions
from moldau.console.pages.frame import page_frame
from moldau.console.pages.tables import LoadedPage, PagedTable, TableColumn
from moldau.console.pages.topic_tabs import topic_head
from moldau.console.rules.paging import PageRequest
from moldau.console.rules.topic_rows import HEALTHY, OFFLINE, PartitionRow
from moldau.console.rules.wording import UNKNOWN, count_text, size_text

_COLUMNS = (
    TableColumn(name="partition", label="Partition", sortable=True),
    TableColumn(name="state", label="State", kind="state"),
    TableColumn(name="leader", label="Leader", kind="number"),
    TableColumn(name="replicas", label="Replicas", wide=True),
    TableColumn(name="in_sync", label="In sync"),
    TableColumn(name="start", label="Start", kind="number", wide=True),
    TableColumn(name="end", label="End", kind="number"),
    TableColumn(name="records", label="Offsets", kind="number", wide=True),
    TableColumn(name="size", label="Size", kind="number", wide=True),
)


def register() -> None:
    @ui.page("/topics/{name}/partitions", response_timeout=15)
    async def show_partitions(name: str) -> None:
        async with page_frame(name, "/topics") as frame:
            console = frame.console
            topic_head(frame, name, "partitions")
            only_troubled = False

            async def load(request: PageRequest) -> LoadedPage:
                sizes = console.watch.sizes
                found = await read_partitions(
                    console.cluster,
                    name,
                    request,
                    {} if sizes is None else sizes.by_partition,
                    only_troubled=only_troubled,
                )
                rows = [_to_row(row) for row in found.page.rows]
                return LoadedPage(rows, found.page.total, found.page.number)

            async def choose(wanted: bool) -> None:
                nonlocal only_troubled
                only_troubled = wanted
                await table.reload()

            with ui.element("section").classes("m-card"):
                table = PagedTable(frame, _COLUMNS, load, empty="There is no such partition")
                with table.toolbar:
                    ui.checkbox("only those in trouble", on_change=lambda e: choose(bool(e.value)))
            frame.every(2.0, table.refresh)


def _to_row(row: PartitionRow) -> dict[str, object]:
    return {
        "id": row.index,
        "partition": row.index,
        "state": row.state,
        "severity": 0 if row.state == HEALTHY else 2 if row.state == OFFLINE else 1,
        "leader": UNKNOWN if row.leader is None else str(row.leader),
        "replicas": ", ".join(map(str, row.replicas)),
        "in_sync": ", ".join(map(str, row.in_sync)) or "nobody",
        "start": count_text(row.start_offset),
        "end": count_text(row.end_offset),
        "records": count_text(row.records),
        "size": size_text(row.size_bytes),
    }
