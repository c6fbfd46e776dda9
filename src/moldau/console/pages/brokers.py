"""Brokers: who is there, what they lead and hold, their disks and settings."""

from __future__ import annotations

from nicegui import ui

from moldau.client.admin_values import ConfigResource
from moldau.console.console import Console
from moldau.console.pages.configs import ConfigPanel
from moldau.console.pages.frame import heading, page_frame
from moldau.console.pages.widgets import LoadedPage, PagedTable, TableColumn
from moldau.console.rules.broker_rows import BrokerRow, LogDirRow, broker_rows, log_dir_rows
from moldau.console.rules.paging import PageRequest, cut_page
from moldau.ops.formatting import UNKNOWN, count_text, free_text, size_text

_COLUMNS = (
    TableColumn(name="name", label="Broker", kind="link"),
    TableColumn(name="address", label="Address", kind="mono"),
    TableColumn(name="state", label="State", kind="state"),
    TableColumn(name="leads", label="Leads", kind="number"),
    TableColumn(name="replicas", label="Replicas", kind="number"),
    TableColumn(name="in_sync", label="In sync", kind="number"),
    TableColumn(name="size", label="Size", kind="number", wide=True),
    TableColumn(name="free", label="Disk free", kind="number", wide=True),
    TableColumn(name="rack", label="Rack", wide=True),
)

_FOLDER_COLUMNS = (
    TableColumn(name="path", label="Folder", kind="mono"),
    TableColumn(name="state", label="State", kind="state"),
    TableColumn(name="replicas", label="Replicas", kind="number"),
    TableColumn(name="size", label="Size", kind="number"),
    TableColumn(name="free", label="Disk free", kind="number", wide=True),
)


def register() -> None:
    @ui.page("/brokers", response_timeout=15)
    async def show_brokers() -> None:
        async with page_frame("Brokers", "/brokers") as frame:
            console = frame.console
            heading("Brokers", "What each one leads and holds")

            async def load(request: PageRequest) -> LoadedPage:
                view, sizes = console.watch.view, console.watch.sizes
                if view is None:
                    return LoadedPage((), 0)
                disks = {} if sizes is None else sizes.disks
                rows = broker_rows(view.cluster, view.topics.values(), disks)
                page = cut_page(rows, request)
                return LoadedPage([_to_row(row) for row in page.rows], page.total, page.number)

            with ui.element("section").classes("m-card"):
                table = PagedTable(frame, _COLUMNS, load, empty="No broker answers")
            frame.every(2.0, table.refresh)

    @ui.page("/brokers/{broker_id}", response_timeout=15)
    async def show_broker(broker_id: int) -> None:
        async with page_frame(f"Broker {broker_id}", "/brokers") as frame:
            heading(f"Broker {broker_id}", _describe(frame.console, broker_id))
            with ui.element("section").classes("m-card"):
                ui.label("Log directories").classes("m-title")
                folders = PagedTable(
                    frame,
                    _FOLDER_COLUMNS,
                    lambda request: _load_folders(frame.console, broker_id, request),
                    empty="Nothing is known of its disks yet",
                )
            frame.every(5.0, folders.refresh)
            panel = ConfigPanel(frame, ConfigResource.broker(broker_id))
            frame.every(15.0, panel.refresh)


async def _load_folders(console: Console, broker_id: int, request: PageRequest) -> LoadedPage:
    sizes = console.watch.sizes
    page = cut_page(log_dir_rows(() if sizes is None else sizes.disks.get(broker_id, ())), request)
    return LoadedPage([_to_folder(row) for row in page.rows], page.total, page.number)


def _describe(console: Console, broker_id: int) -> str:
    view = console.watch.view
    for broker in () if view is None else view.cluster.brokers:
        if broker.id == broker_id:
            rack = "" if broker.rack is None else f" · rack {broker.rack}"
            is_controller = view is not None and view.cluster.controller_id == broker_id
            return f"{broker.address}{rack}" + (" · controller" if is_controller else "")
    return "not there at the moment"


def _to_folder(row: LogDirRow) -> dict[str, object]:
    return {
        "id": row.path,
        "path": row.path,
        "state": row.failure or (f"{row.moving:,} moving in" if row.moving else "serves"),
        "severity": 2 if row.failure else 1 if row.moving else 0,
        "replicas": count_text(row.replicas),
        "size": size_text(row.size_bytes),
        "free": free_text(row.free_bytes, row.total_bytes),
    }


def _to_row(row: BrokerRow) -> dict[str, object]:
    problem = "; ".join(row.failed_dirs)
    state = "away" if row.address is None else problem or "serves"
    return {
        "id": row.id,
        "name": f"{row.id} (controller)" if row.is_controller else str(row.id),
        "href": f"/brokers/{row.id}",
        "address": row.address or UNKNOWN,
        "state": state,
        "severity": 2 if row.address is None else 1 if problem else 0,
        "leads": count_text(row.leads),
        "replicas": count_text(row.replicas),
        "in_sync": count_text(row.in_sync),
        "size": size_text(row.size_bytes),
        "free": free_text(row.free_bytes, row.total_bytes),
        "rack": row.rack or UNKNOWN,
    }
