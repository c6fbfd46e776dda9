"""The topics, and the pages of one: its partitions, activity and settings, and a test record."""

from __future__ import annotations

from nicegui import ui

from moldau.client.admin.values import BROKER_DEFAULT, ConfigResource, NewTopic
from moldau.console.groups import GroupRow, TopicReaders, find_readers, group_severity
from moldau.console.pages.widgets import (
    ConfigPanel,
    Frame,
    PagedTable,
    Row,
    TableColumn,
    TrafficCharts,
    confirm,
    group_path,
    heading,
    opened_dialog,
    page_frame,
    topic_path,
)
from moldau.console.paging import Page, PageRequest, cut_page
from moldau.console.records import OutgoingText, send_record
from moldau.console.topics import (
    HEALTHY,
    OFFLINE,
    PartitionRow,
    TopicRow,
    choose_topics,
    create_topic,
    delete_topic,
    parse_configs,
    parse_headers,
    read_partitions,
    require_topic,
    topic_row,
)
from moldau.errors import ConfigurationError
from moldau.model import format_uuid
from moldau.ops.formatting import UNKNOWN, count_text, plural, rate_text, size_text

_COLUMNS = (
    TableColumn(name="name", label="Topic", kind="link", sortable=True),
    TableColumn(name="partitions", label="Partitions", kind="number", sortable=True),
    TableColumn(name="replicas", label="Replicas", kind="number", sortable=True, wide=True),
    TableColumn(name="state", label="State", kind="state", sortable=True),
    TableColumn(name="size", label="Size", kind="number", sortable=True, wide=True),
    TableColumn(name="rate", label="Records/s", kind="number", sortable=True),
)


def register_topics() -> None:
    @ui.page("/topics", response_timeout=15)
    async def show_topics() -> None:
        async with page_frame("Topics", "/topics") as frame:
            console = frame.console
            heading("Topics")
            with_internal = False

            async def load(request: PageRequest) -> Page[Row]:
                watch = console.watch
                if watch.view is None:
                    return Page((), 0)
                sizes = None if watch.sizes is None else watch.sizes.by_topic
                rows = [topic_row(one, sizes, watch.rates) for one in watch.view.topics.values()]
                return cut_page(
                    choose_topics(rows, request, with_internal=with_internal), request
                ).map(_to_row)

            async def choose_internal(wanted: bool) -> None:
                nonlocal with_internal
                with_internal = wanted
                await table.reload()

            with ui.element("section").classes("m-card"):
                table = PagedTable(
                    frame, _COLUMNS, load, empty="No topics found", search="Find a topic"
                )
                with table.toolbar:
                    ui.checkbox("internal ones", on_change=lambda e: choose_internal(bool(e.value)))
                    ui.space()
                    if console.may_change:
                        ui.button(
                            "Create topic", icon="add", on_click=lambda: _open_creation(frame)
                        ).props("unelevated")
            frame.every(2.0, table.refresh)


def _to_row(row: TopicRow) -> dict[str, object]:
    return {
        "id": row.name,
        "name": row.name,
        "href": topic_path(row.name),
        "partitions": count_text(row.partitions),
        "replicas": count_text(row.replication_factor),
        "state": row.state,
        "severity": row.severity,
        "size": size_text(row.size_bytes),
        "rate": rate_text(row.rate),
    }


def _open_creation(frame: Frame) -> None:
    with opened_dialog("Create a topic") as dialog:
        name = ui.input("Name").props("outlined dense autofocus").classes("m-full")
        with ui.element("div").classes("m-row"):
            partitions = ui.number("Partitions", min=1, precision=0, placeholder="the default")
            replicas = ui.number("Replicas", min=1, precision=0, placeholder="the default")
            for box in (partitions, replicas):
                box.props("outlined dense stack-label").classes("m-grow")
        configs = ui.textarea("Settings", placeholder="retention.ms=3600000\none on a line")
        configs.props("outlined dense autogrow stack-label").classes("m-full")

        async def create() -> None:
            try:
                topic = NewTopic(
                    name=(name.value or "").strip(),
                    partitions=int(partitions.value or BROKER_DEFAULT),
                    replication_factor=int(replicas.value or BROKER_DEFAULT),
                    configs=parse_configs(configs.value or ""),
                )
            except ConfigurationError as error:
                ui.notify(str(error), type="negative")
                return
            work = create_topic(frame.console.cluster, topic)
            if await frame.attempt(work, f"{topic.name} was created"):
                dialog.close()
                await frame.console.watch.refresh()
                ui.navigate.to(topic_path(topic.name))

        name.on("keydown.enter", create)
        with ui.element("div").classes("m-buttons"):
            ui.button("Cancel", on_click=dialog.close).props("flat")
            ui.button("Create", on_click=create)


_TABS = (
    ("", "Messages"),
    ("partitions", "Partitions"),
    ("activity", "Activity"),
    ("settings", "Settings"),
    ("produce", "Produce"),
)


def topic_head(frame: Frame, name: str, active: str) -> None:
    console = frame.console
    with ui.element("div").classes("m-head"):
        heading(name, _describe_topic(frame, name))
        ui.space()
        if console.may_change:
            ui.button(icon="delete", on_click=lambda: _delete_topic(frame, name)).props(
                'flat round color=negative aria-label="Delete topic"'
            )
    with ui.element("nav").classes("m-tabs"):
        for tab, label in _TABS:
            if tab == "produce" and not console.may_change:
                continue
            link = ui.link(label, topic_path(name, tab)).classes("m-tab")
            if tab == active:
                link.classes("m-tab-active").props('aria-current="page"')


def _describe_topic(frame: Frame, name: str) -> str:
    watch = frame.console.watch
    topic = None if watch.view is None else watch.view.topics.get(name)
    if topic is None:
        return "a topic"
    parts = [plural(len(topic.partitions), "partition")]
    if watch.sizes is not None:
        parts.append(size_text(watch.sizes.by_topic.get(name, 0)))
    if topic.topic_id is not None:
        parts.append(f"id {format_uuid(topic.topic_id)}")
    return " · ".join(parts)


async def _delete_topic(frame: Frame, name: str) -> None:
    question = f"Delete topic {name}?"
    if not await confirm(question, "All its records are gone then.", "Delete", typed=name):
        return
    if await frame.attempt(delete_topic(frame.console.cluster, name), f"{name} was deleted"):
        await frame.console.watch.refresh()
        ui.navigate.to("/topics")


_PARTITION_COLUMNS = (
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


def register_partitions() -> None:
    @ui.page("/topics/{name}/partitions", response_timeout=15)
    async def show_partitions(name: str) -> None:
        async with page_frame(name, "/topics") as frame:
            console = frame.console
            topic_head(frame, name, "partitions")
            only_troubled = False

            async def load(request: PageRequest) -> Page[Row]:
                sizes = console.watch.sizes
                found = await read_partitions(
                    console.cluster,
                    name,
                    request,
                    {} if sizes is None else sizes.by_partition,
                    only_troubled=only_troubled,
                )
                return found.page.map(_to_partition_row)

            async def choose(wanted: bool) -> None:
                nonlocal only_troubled
                only_troubled = wanted
                await table.reload()

            with ui.element("section").classes("m-card"):
                table = PagedTable(
                    frame, _PARTITION_COLUMNS, load, empty="There is no such partition"
                )
                with table.toolbar:
                    ui.checkbox("only those in trouble", on_change=lambda e: choose(bool(e.value)))
            frame.every(2.0, table.refresh)


def _to_partition_row(row: PartitionRow) -> dict[str, object]:
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


_READER_COLUMNS = (
    TableColumn(name="name", label="Group", kind="link"),
    TableColumn(name="kind", label="Kind", wide=True),
    TableColumn(name="state", label="State", kind="state"),
    TableColumn(name="lag", label="Lag in this topic", kind="number"),
)


def register_activity() -> None:
    @ui.page("/topics/{name}/activity", response_timeout=15)
    async def show_activity(name: str) -> None:
        async with page_frame(name, "/topics") as frame:
            topic_head(frame, name, "activity")
            page = ActivityPage(frame, name)
            frame.every(2.0, page.refresh)
            frame.every(15.0, page.refresh_slowly)


class ActivityPage:
    """See the module. The charts begin when somebody opens the page for the first time."""

    def __init__(self, frame: Frame, topic: str) -> None:
        self._console = frame.console
        self._topic = topic
        self._readers = TopicReaders((), 0)
        self._charts = TrafficCharts()
        with ui.element("section").classes("m-card"):
            ui.label("Groups that read it").classes("m-title")
            self._remark = ui.label().classes("m-faint")
            self._table = PagedTable(
                frame, _READER_COLUMNS, self._load, empty="No group has read from it"
            )

    async def refresh(self) -> None:
        watch = self._console.watch
        self._charts.show(watch.histories.of(self._topic), watch.traffic)

    async def refresh_slowly(self) -> None:
        topic = await require_topic(self._console.cluster, self._topic)
        self._readers = await find_readers(self._console.cluster, topic)
        left = self._readers.not_asked
        self._remark.set_text(f"{plural(left, 'group')} more were not asked" if left else "")
        await self._table.refresh()

    async def _load(self, request: PageRequest) -> Page[Row]:
        return cut_page(self._readers.rows, request).map(_to_reader_row)


def _to_reader_row(row: GroupRow) -> dict[str, object]:
    return {
        "id": row.name,
        "name": row.name,
        "href": group_path(row.name),
        "kind": row.kind,
        "state": row.state,
        "severity": group_severity(row.state),
        "lag": count_text(row.lag),
    }


def register_settings() -> None:
    @ui.page("/topics/{name}/settings", response_timeout=15)
    async def show_settings(name: str) -> None:
        async with page_frame(name, "/topics") as frame:
            topic_head(frame, name, "settings")
            panel = ConfigPanel(frame, ConfigResource.topic(name))
            frame.every(15.0, panel.refresh)


def register_produce() -> None:
    @ui.page("/topics/{name}/produce", response_timeout=15)
    async def show_produce(name: str) -> None:
        async with page_frame(name, "/topics") as frame:
            topic_head(frame, name, "produce")
            with ui.element("section").classes("m-card m-form"):
                _produce_form(frame, name)


def _produce_form(frame: Frame, topic: str) -> None:
    key = ui.input("Key", placeholder="none").props("outlined dense stack-label").classes("m-full")
    value = (
        ui.textarea("Value").props("outlined dense autogrow stack-label").classes("m-full m-code")
    )
    is_null = ui.checkbox("null instead of a value: deletes the key where the log is compacted")
    headers = ui.textarea("Headers", placeholder="name: value\none on a line")
    headers.props("outlined dense autogrow stack-label").classes("m-full")
    partition = ui.number("Partition", min=0, precision=0, placeholder="by the key")
    partition.props("outlined dense stack-label")

    async def send() -> None:
        try:
            record = OutgoingText(
                topic=topic,
                key=key.value or None,
                value=None if is_null.value else value.value or "",
                headers=parse_headers(headers.value or ""),
                partition=None if partition.value is None else int(partition.value),
            )
        except ConfigurationError as error:
            ui.notify(str(error), type="negative")
            return

        async def work() -> None:
            sent = await send_record(frame.console.cluster, record)
            outcome.set_text(f"Written to partition {sent.partition} at offset {sent.offset:,}")

        await frame.attempt(work(), "The record was written")

    with ui.element("div").classes("m-buttons"):
        outcome = ui.label().classes("m-faint")
        ui.button("Send", icon="send", on_click=send).props("unelevated")
