"""The topics: found by name, sorted, thousands of them page by page; and new ones."""

from __future__ import annotations

from nicegui import ui

from moldau.client.admin_values import BROKER_DEFAULT, NewTopic
from moldau.console.data.topics import create_topic
from moldau.console.pages.dialogs import opened_dialog
from moldau.console.pages.frame import Frame, heading, page_frame, topic_path
from moldau.console.pages.tables import LoadedPage, PagedTable, TableColumn
from moldau.console.rules.new_topic import parse_configs
from moldau.console.rules.paging import PageRequest, cut_page
from moldau.console.rules.topic_rows import TopicRow, choose_topics, topic_row
from moldau.console.rules.wording import count_text, rate_text, size_text
from moldau.errors import ConfigurationError

_COLUMNS = (
    TableColumn(name="name", label="Topic", kind="link", sortable=True),
    TableColumn(name="partitions", label="Partitions", kind="number", sortable=True),
    TableColumn(name="replicas", label="Replicas", kind="number", sortable=True, wide=True),
    TableColumn(name="state", label="State", kind="state", sortable=True),
    TableColumn(name="size", label="Size", kind="number", sortable=True, wide=True),
    TableColumn(name="rate", label="Records/s", kind="number", sortable=True),
)


def register() -> None:
    @ui.page("/topics", response_timeout=15)
    async def show_topics() -> None:
        async with page_frame("Topics", "/topics") as frame:
            console = frame.console
            heading("Topics")
            with_internal = False

            async def load(request: PageRequest) -> LoadedPage:
                watch = console.watch
                if watch.view is None:
                    return LoadedPage((), 0)
                sizes = None if watch.sizes is None else watch.sizes.by_topic
                rows = [topic_row(one, sizes, watch.rates) for one in watch.view.topics.values()]
                page = cut_page(choose_topics(rows, request, with_internal=with_internal), request)
                return LoadedPage([_to_row(row) for row in page.rows], page.total, page.number)

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
