"""The first page: is the cluster well, how fast do records come, and where."""

from __future__ import annotations

from nicegui import ui

from moldau.client.admin_values import ConfigResource
from moldau.console.data.cluster import EXPECTED
from moldau.console.data.groups import list_groups
from moldau.console.data.topics import read_settings
from moldau.console.data.watch import SeenCluster
from moldau.console.pages.frame import Frame, heading, page_frame, topic_path
from moldau.console.pages.widgets import LoadedPage, PagedTable, Row, TableColumn, TrafficCharts
from moldau.console.rules.broker_rows import coordination_text
from moldau.console.rules.group_rows import state_counts
from moldau.console.rules.paging import PageRequest
from moldau.console.rules.topic_rows import cluster_health
from moldau.console.rules.traffic import Traffic, busiest
from moldau.ops.formatting import UNKNOWN, bytes_text, count_text, rate_text, size_text

_BUSIEST = 10
_COLUMNS = (
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


def register() -> None:
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
                frame, _COLUMNS, self._load, empty="Nothing is written at the moment"
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

    async def _load(self, _: PageRequest) -> LoadedPage:
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
        return LoadedPage(rows, len(rows))

    async def _describe_coordination(self, view: SeenCluster) -> str:
        if not view.cluster.brokers:
            return ""
        one = ConfigResource.broker(view.cluster.brokers[0].id)
        try:
            return f" · {coordination_text(await read_settings(self._console.cluster, one))}"
        except EXPECTED:  # not everybody may ask for it
            return ""
