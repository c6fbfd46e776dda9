"""The overview of a cluster, its brokers, and the pipelines that the console was told of."""

from __future__ import annotations

import asyncio

from nicegui import ui

from moldau.client.admin.values import ConfigResource
from moldau.console.cluster import (
    EXPECTED,
    BrokerRow,
    LogDirRow,
    broker_rows,
    coordination_text,
    log_dir_rows,
)
from moldau.console.groups import list_groups, state_counts
from moldau.console.pages.widgets import (
    ConfigPanel,
    Frame,
    PagedTable,
    Row,
    TableColumn,
    TrafficCharts,
    heading,
    page_frame,
    topic_path,
)
from moldau.console.paging import Page, PageRequest, cut_page
from moldau.console.sessions import Console
from moldau.console.settings import PipelineView
from moldau.console.topics import read_settings
from moldau.console.watch import SeenCluster, Traffic, busiest
from moldau.ops.cluster_view import cluster_health
from moldau.ops.formatting import UNKNOWN, bytes_text, count_text, free_text, rate_text, size_text

# Overview: is the cluster well, how fast do records come, and where


_BUSIEST = 10
_BUSIEST_COLUMNS = (
    TableColumn(name="name", label="Topic", kind="link"),
    TableColumn(name="rate", label="Records/s", kind="number"),
    TableColumn(name="bytes_in", label="Written/s", kind="number"),
    TableColumn(name="bytes_out", label="Read/s", kind="number", wide=True),
)


class Figure:
    """A number with what it counts; it can lead to a page."""

    def __init__(self, label: str, path: str) -> None:
        with ui.link(target=path).classes("m-figure"):
            ui.label(label).classes("m-figure-label")
            self._number = ui.label(UNKNOWN).classes("m-figure-number")
            self._remark = ui.label().classes("m-faint")

    def show(self, number: str, remark: str = "", *, is_bad: bool = False) -> None:
        if self._number.text != number:
            self._number.set_text(number)
        if self._remark.text != remark:
            self._remark.set_text(remark)
        self._number.classes(
            add="m-bad-text" if is_bad else "", remove="" if is_bad else "m-bad-text"
        )


def register_overview() -> None:
    @ui.page("/", response_timeout=15)
    async def show_overview() -> None:
        async with page_frame("Overview", "/") as frame:
            page = Overview(frame)
            frame.every(1.0, page.refresh)
            frame.every(5.0, page.refresh_slowly)


class Overview:
    """See the module. What is watched anyway is shown each second; groups are asked for slowly."""

    def __init__(self, frame: Frame) -> None:
        self._console = frame.console
        self._line = heading("Overview")
        with ui.element("div").classes("m-figures"):
            self._brokers = Figure("Brokers", "/brokers")
            self._topics = Figure("Topics", "/topics")
            self._partitions = Figure("Partitions", "/topics")
            self._groups = Figure("Groups", "/groups")
            self._size = Figure("On disk", "/brokers")
            self._rate = Figure("Records/s", "/topics")
            self._bytes = Figure("Bytes/s", "/topics")
        self._charts = TrafficCharts()
        with ui.element("section").classes("m-card"):
            ui.label("Busiest topics").classes("m-title")
            self._table = PagedTable(
                frame, _BUSIEST_COLUMNS, self._load, empty="Nothing is written at the moment"
            )

    async def refresh(self) -> None:
        watch = self._console.watch
        total, traffic = watch.histories.total, watch.traffic
        self._charts.show(total, traffic)
        self._rate.show(rate_text(total.records.last), "written")
        written, read = bytes_text(total.bytes_in.last), bytes_text(total.bytes_out.last)
        self._bytes.show(written, "written" if total.bytes_out.last is None else f"{read} read")
        await self._table.refresh()
        if watch.sizes is not None:
            self._size.show(size_text(sum(watch.sizes.by_topic.values())), "without copies")
        if watch.view is not None:
            self._show_view(watch.view)

    async def refresh_slowly(self) -> None:
        view = self._console.watch.view
        if view is None:
            return
        cluster_id = view.cluster.cluster_id or UNKNOWN
        self._line.set_text(f"cluster {cluster_id}{await self._describe_coordination(view)}")
        found = await list_groups(self._console.cluster)
        words = ", ".join(f"{count:,} {state}" for state, count in state_counts(found))
        self._groups.show(count_text(len(found)), words)

    def _show_view(self, view: SeenCluster) -> None:
        controller = view.cluster.controller_id
        self._brokers.show(
            count_text(len(view.cluster.brokers)),
            f"controller {controller}" if controller >= 0 else "no controller",
            is_bad=controller < 0,
        )
        health = cluster_health(view.topics.values())
        internal = sum(topic.is_internal for topic in view.topics.values())
        self._topics.show(count_text(health.topics - internal), f"and {internal} internal")
        troubles = f"{health.offline:,} offline, {health.under_replicated:,} under-replicated"
        self._partitions.show(
            count_text(health.partitions),
            "all in sync" if health.is_healthy else troubles,
            is_bad=not health.is_healthy,
        )

    async def _load(self, _: PageRequest) -> Page[Row]:
        traffic = self._console.watch.traffic or Traffic()
        rows: list[Row] = [
            {
                "id": name,
                "name": name,
                "href": topic_path(name),
                "rate": rate_text(rate),
                "bytes_in": bytes_text(traffic.bytes_in.get(name)),
                "bytes_out": bytes_text((traffic.bytes_out or {}).get(name)),
            }
            for name, rate in busiest(self._console.watch.rates, _BUSIEST)
        ]
        return Page(rows, len(rows))

    async def _describe_coordination(self, view: SeenCluster) -> str:
        if not view.cluster.brokers:
            return ""
        one = ConfigResource.broker(view.cluster.brokers[0].id)
        try:
            return f" · {coordination_text(await read_settings(self._console.cluster, one))}"
        except EXPECTED:  # not everybody may ask for it
            return ""


# Brokers: what they lead and hold, their disks and settings


_BROKER_COLUMNS = (
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


def register_brokers() -> None:
    @ui.page("/brokers", response_timeout=15)
    async def show_brokers() -> None:
        async with page_frame("Brokers", "/brokers") as frame:
            console = frame.console
            heading("Brokers", "What each one leads and holds")

            async def load(request: PageRequest) -> Page[Row]:
                view, sizes = console.watch.view, console.watch.sizes
                if view is None:
                    return Page((), 0)
                disks = {} if sizes is None else sizes.disks
                rows = broker_rows(view.cluster, view.topics.values(), disks)
                return cut_page(rows, request).map(_to_broker_row)

            with ui.element("section").classes("m-card"):
                table = PagedTable(frame, _BROKER_COLUMNS, load, empty="No broker answers")
            frame.every(2.0, table.refresh)

    @ui.page("/brokers/{broker_id}", response_timeout=15)
    async def show_broker(broker_id: int) -> None:
        async with page_frame(f"Broker {broker_id}", "/brokers") as frame:
            heading(f"Broker {broker_id}", _describe_broker(frame.console, broker_id))
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


async def _load_folders(console: Console, broker_id: int, request: PageRequest) -> Page[Row]:
    sizes = console.watch.sizes
    return cut_page(
        log_dir_rows(() if sizes is None else sizes.disks.get(broker_id, ())), request
    ).map(_to_folder)


def _describe_broker(console: Console, broker_id: int) -> str:
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


def _to_broker_row(row: BrokerRow) -> dict[str, object]:
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


# Pipelines, as `moldau pipeline status` knows them


_NONE = (
    "A pipeline is a file and a checkpoint on a disk. Name the file, on the machine that has both: "
    "moldau console --pipeline clicks.yaml"
)


def register_pipelines() -> None:
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
                            _show_pipeline(one)

            frame.every(5.0, refresh)


def _show_pipeline(view: PipelineView) -> None:
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
