"""What happens in a topic: records and bytes over time, and the groups that read it."""

from __future__ import annotations

from nicegui import ui

from moldau.console.data.groups import TopicReaders, find_readers
from moldau.console.data.topics import require_topic
from moldau.console.pages.charts import TrafficCharts
from moldau.console.pages.frame import Frame, group_path, page_frame
from moldau.console.pages.tables import LoadedPage, PagedTable, TableColumn
from moldau.console.pages.topic_tabs import topic_head
from moldau.console.rules.group_rows import GroupRow, group_severity
from moldau.console.rules.paging import PageRequest, cut_page
from moldau.console.rules.wording import count_text, plural

_COLUMNS = (
    TableColumn(name="name", label="Group", kind="link"),
    TableColumn(name="kind", label="Kind", wide=True),
    TableColumn(name="state", label="State", kind="state"),
    TableColumn(name="lag", label="Lag in this topic", kind="number"),
)


def register() -> None:
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
            self._table = PagedTable(frame, _COLUMNS, self._load, empty="No group has read from it")

    async def refresh(self) -> None:
        watch = self._console.watch
        self._charts.show(watch.histories.of(self._topic), watch.traffic)

    async def refresh_slowly(self) -> None:
        topic = await require_topic(self._console.cluster, self._topic)
        self._readers = await find_readers(self._console.cluster, topic)
        left = self._readers.not_asked
        self._remark.set_text(f"{plural(left, 'group')} more were not asked" if left else "")
        await self._table.refresh()

    async def _load(self, request: PageRequest) -> LoadedPage:
        page = cut_page(self._readers.rows, request)
        return LoadedPage([_to_row(row) for row in page.rows], page.total, page.number)


def _to_row(row: GroupRow) -> dict[str, object]:
    return {
        "id": row.name,
        "name": row.name,
        "href": group_path(row.name),
        "kind": row.kind,
        "state": row.state,
        "severity": group_severity(row.state),
        "lag": count_text(row.lag),
    }
