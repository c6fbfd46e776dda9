"""What pages are made of: tables that are cut on the server, charts, dialogs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from nicegui import ui
from nicegui.events import GenericEventArguments

from moldau.console.pages.frame import Frame
from moldau.console.rules.paging import PageRequest
from moldau.console.rules.traffic import FROM_LOGS, TimeSeries, Traffic, TrafficSeries
from moldau.ops.formatting import axis_step

Row = dict[str, object]
Kind = Literal["text", "number", "link", "state", "mono", "open"]

ROWS_PER_PAGE = 25
_FEWEST_ROWS = 10  # of a page: whoever has fewer rows needs no buttons to turn pages

_SLOTS: dict[str, str] = {
    # Vue escapes what stands in braces and attributes: names and values may be anything.
    "link": '<a class="m-link" :href="props.row.href">{{ props.value }}</a>',
    "state": "<span :class=\"'m-state m-sev-' + props.row.severity\">{{ props.value }}</span>",
    "mono": '<span class="m-mono" :title="props.value">{{ props.value }}</span>',
    "open": (
        '<button type="button" class="m-link m-mono" '
        "@click.stop=\"$parent.$emit('open', props.row.id)\">{{ props.value }}</button>"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """`wide` columns are left out on a phone. An `open` one is a button: see `on_open`."""

    name: str
    label: str
    kind: Kind = "text"
    sortable: bool = False
    wide: bool = False

    def to_quasar(self) -> dict[str, object]:
        classes = "m-wide" if self.wide else ""
        return {
            "name": self.name,
            "label": self.label,
            "field": self.name,
            "sortable": self.sortable,
            "align": "right" if self.kind == "number" else "left",
            "classes": f"{classes} m-cell-{self.kind}",
            "headerClasses": classes,
        }


@dataclass(frozen=True, slots=True)
class LoadedPage:
    """Rows of one page; the total is of all that match, and the number is the page's."""

    rows: Sequence[Row]
    total: int
    number: int = 1


Load = Callable[[PageRequest], Awaitable[LoadedPage]]


class PagedTable:
    """`load` is asked when the page, the order or the search changes, and by `refresh`."""

    def __init__(
        self,
        frame: Frame,
        columns: Sequence[TableColumn],
        load: Load,
        *,
        empty: str,
        search: str = "",
        rows_per_page: int = ROWS_PER_PAGE,
    ) -> None:
        self._frame = frame
        self._load = load
        self._request = PageRequest(rows=rows_per_page)
        self._shown: tuple[Sequence[Row], int, int] | None = None
        with ui.element("div").classes("m-toolbar") as self.toolbar:
            if search:
                box = ui.input(placeholder=search, on_change=lambda e: self._on_search(e.value))
                box.props('dense outlined clearable debounce=250 type=search aria-label="Search"')
                box.classes("m-search")
        self.element = ui.table(
            columns=[column.to_quasar() for column in columns],
            rows=[],
            row_key="id",
            pagination={
                "page": 1,
                "rowsPerPage": rows_per_page,
                "rowsNumber": 0,
                "sortBy": None,
                "descending": False,
            },
        ).classes("m-table")
        self.element.props("flat dense binary-state-sort :rows-per-page-options='[10,25,50,100]'")
        self.element.props('rows-per-page-label="Rows per page"')
        self.element.add_slot("no-data", f'<span class="m-faint">{empty}</span>')  # our own words
        self.element.on("request", self._on_request)
        for column in columns:
            slot = _SLOTS.get(column.kind)
            if slot is not None:
                self.element.add_slot(
                    f"body-cell-{column.name}", f'<q-td :props="props">{slot}</q-td>'
                )

    def on_open(self, work: Callable[[str], Awaitable[None]]) -> None:
        """A button in the row for the keyboard, and the row itself for everybody else."""
        self.element.on("open", lambda event: work(str(event.args)))
        self.element.on("rowClick", lambda event: work(str(event.args[1]["id"])), [[], ["id"], []])
        self.element.classes("m-table-open")

    async def refresh(self) -> None:
        """Ask again, and send what has changed."""
        loaded = await self._load(self._request)
        shown = (loaded.rows, loaded.total, loaded.number)
        pages = {
            "page": loaded.number,
            "rowsPerPage": self._request.rows,
            "rowsNumber": loaded.total,
            "sortBy": self._request.sort_by or None,
            "descending": self._request.descending,
        }
        # A browser says what it shows when it has drawn the page: without rows, if they came since.
        if shown == self._shown and self.element.pagination == pages:
            return
        self._shown = shown
        self._request = replace(self._request, page=loaded.number)
        self.element.pagination = pages
        is_short = loaded.total <= min(self._request.rows, _FEWEST_ROWS)
        if is_short:
            self.element.props("hide-pagination")
        else:
            self.element.props(remove="hide-pagination")
        self.element.rows = list(loaded.rows)
        self.element.update()

    async def reload(self) -> None:
        """Something of what is asked for has changed: begin at the first page."""
        self._request = replace(self._request, page=1)
        self._shown = None
        await self._frame.attempt(self.refresh())

    async def _on_search(self, text: str | None) -> None:
        self._request = replace(self._request, search=text or "")
        await self.reload()

    async def _on_request(self, event: GenericEventArguments) -> None:
        wanted = event.args["pagination"]
        self._request = replace(
            self._request,
            page=int(wanted.get("page") or 1),
            rows=int(wanted.get("rowsPerPage") or ROWS_PER_PAGE),
            sort_by=wanted.get("sortBy") or "",
            descending=bool(wanted.get("descending")),
        )
        self._shown = None
        await self._frame.attempt(self.refresh())


_GREY = "#94a3b8"
_COLOURS = ("#0891b2", "#d97706")
_COUNTS = "value => Intl.NumberFormat('en', {notation: 'compact'}).format(value)"
_SIZES = """value => {
    let unit = 0;
    while (value >= 999.5 && unit < 4) { value /= 1024; unit++; }
    return Number(value.toPrecision(3)) + ' ' + ['B', 'KB', 'MB', 'GB', 'TB'][unit];
}"""


class LineChart:
    """One series or two; gaps stay gaps."""

    def __init__(self, *names: str, is_bytes: bool = False) -> None:
        self._is_bytes = is_bytes
        self._shown: list[list[list[float | None]]] = []
        number = _SIZES if is_bytes else _COUNTS
        self._element = ui.echart(
            {
                "animation": False,
                "grid": {
                    "left": 8,
                    "right": 32,
                    "top": 28 if len(names) > 1 else 12,
                    "bottom": 8,
                    "containLabel": True,
                },
                "legend": {
                    "show": len(names) > 1,
                    "top": 0,
                    "right": 24,
                    "itemHeight": 8,
                    "textStyle": {"color": _GREY},
                },
                "tooltip": {"trigger": "axis", ":valueFormatter": number},
                "xAxis": {
                    "type": "time",
                    "axisLabel": {"color": _GREY, "hideOverlap": True},
                    "axisLine": {"lineStyle": {"color": _GREY}},
                    "splitLine": {"show": False},
                },
                "yAxis": {
                    "type": "value",
                    "min": 0,
                    "minInterval": 1,
                    "axisLabel": {"color": _GREY, ":formatter": number},
                    "splitLine": {"lineStyle": {"color": _GREY, "opacity": 0.25}},
                },
                "series": [
                    {
                        "name": name,
                        "type": "line",
                        "showSymbol": False,
                        "connectNulls": False,
                        "lineStyle": {"width": 2, "color": colour},
                        "itemStyle": {"color": colour},
                        "areaStyle": {"color": colour, "opacity": 0.12},
                        "data": [],
                    }
                    for name, colour in zip(names, _COLOURS, strict=False)
                ],
            }
        ).classes("m-chart")

    def show(self, *histories: TimeSeries) -> None:
        series = [one.to_series() for one in histories]
        if series != self._shown:
            self._shown = series
            for at, data in enumerate(series):
                self._element.options["series"][at]["data"] = data
            if self._is_bytes:
                most = max((value or 0 for data in series for _, value in data), default=0)
                step = axis_step(most)
                self._element.options["yAxis"] |= {"interval": step, "max": step * 4}
            self._element.update()


class TrafficCharts:
    """Records and bytes a second, side by side where there is room."""

    def __init__(self) -> None:
        with ui.element("div").classes("m-charts"):
            with ui.element("section").classes("m-card"):
                ui.label("Records written a second").classes("m-title")
                ui.label("counted from the ends of partitions").classes("m-faint")
                self._records = LineChart("records a second")
            with ui.element("section").classes("m-card"):
                ui.label("Bytes a second").classes("m-title")
                self._source = ui.label(FROM_LOGS).classes("m-faint")
                self._bytes = LineChart("written", "read", is_bytes=True)

    def show(self, series: TrafficSeries, traffic: Traffic | None) -> None:
        self._records.show(series.records)
        self._bytes.show(series.bytes_in, series.bytes_out)
        if traffic is not None and self._source.text != traffic.source:
            self._source.set_text(traffic.source)


Action = Callable[[], Awaitable[None]]


@contextmanager
def opened_dialog(title: str, *, is_wide: bool = False) -> Iterator[ui.dialog]:
    """One that is open, with its title; what is made in the block is in it. It is gone when it was
    closed."""
    classes = "m-dialog m-record" if is_wide else "m-dialog"
    with ui.dialog(value=True) as dialog, ui.card().classes(classes):
        dialog.on("hide", dialog.delete)
        ui.label(title).classes("m-title m-break")
        yield dialog


def add_buttons(
    dialog: ui.dialog, verb: str, on_save: Action, *, removal: str = "", on_remove: Action
) -> None:
    """Of a dialog about one thing. With `removal`, a button that takes it away stands apart."""
    with ui.element("div").classes("m-buttons"):
        if removal:
            ui.button(removal, on_click=on_remove).props("flat color=negative")
            ui.space()
        ui.button("Cancel", on_click=dialog.close).props("flat")
        ui.button(verb, on_click=on_save)


async def confirm(question: str, details: str, verb: str, *, typed: str = "") -> bool:
    """Ask; with `typed`, the person has to write that word, for what cannot be undone."""
    with ui.dialog(value=True).props("persistent") as dialog, ui.card().classes("m-dialog"):
        ui.label(question).classes("m-title m-break")
        ui.label(details).classes("m-prose m-break")
        box = None
        if typed:
            box = ui.input(f"Write {typed} to go on").props("outlined dense autofocus")
            box.classes("m-full")
        with ui.element("div").classes("m-buttons"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            go_on = ui.button(verb, on_click=lambda: dialog.submit(True))
            go_on.props("color=negative" if typed else "color=primary")
            if box is not None:
                go_on.bind_enabled_from(box, "value", lambda value: value == typed)
    answer = await dialog
    dialog.delete()
    return bool(answer)
