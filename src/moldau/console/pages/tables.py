"""Tables whose pages are cut on the server: a browser gets the rows that it shows, no more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nicegui import ui
from nicegui.events import GenericEventArguments

from moldau.console.pages.frame import Frame
from moldau.console.rules.paging import PageRequest

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
