"""What pages are made of: the frame around each, tables, charts, dialogs, settings.

Tables are cut on the server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import quote

from nicegui import ui
from nicegui.events import GenericEventArguments, KeyEventArguments

from moldau import __version__
from moldau.client.admin.values import ConfigResource
from moldau.console.cluster import EXPECTED, failure_text
from moldau.console.guards import LOGOUT_PATH, SESSION_PATH
from moldau.console.paging import Page, PageRequest, cut_page
from moldau.console.sessions import Console
from moldau.console.topics import (
    ConfigEdit,
    ConfigRow,
    change_config,
    choose_configs,
    plan_edit,
    plan_removal,
    read_configs,
)
from moldau.console.watch import FROM_LOGS, TimeSeries, Traffic, TrafficSeries
from moldau.ops.formatting import axis_step, duration_text

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


Load = Callable[[PageRequest], Awaitable[Page[Row]]]


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


# The frame: navigation, the state of the cluster, keys, light and dark


NAVIGATION = (
    ("o", "Overview", "/", "dashboard"),
    ("b", "Brokers", "/brokers", "dns"),
    ("t", "Topics", "/topics", "topic"),
    ("g", "Groups", "/groups", "groups"),
    ("x", "Transactions", "/transactions", "swap_horiz"),
    ("p", "Pipelines", "/pipelines", "account_tree"),
    ("a", "Access", "/access", "lock"),
)
_KEYS = (
    *((key, label) for key, label, _, _ in NAVIGATION),
    ("/", "Search on this page"),
    ("d", "Light or dark"),
    ("?", "These keys"),
)
_FIRST_ANSWER_SECONDS = 1.0
_THEME_COOKIE = "moldau-theme"
_SEARCH = ".m-search input"
_TOGGLE_NAVIGATION = "() => document.body.classList.toggle('m-nav-open')"
_LOGGING_OUT = "moldauIsLoggingOut"
_TO_LOGIN = f"if (!window.{_LOGGING_OUT}) location.reload()"
"""Leads to the login, as the session is over. Not where a person has just logged out: the tab is on
its way there, and to load it again would end that on the way."""

_LOG_OUT = f"""() => {{
    window.{_LOGGING_OUT} = true;
    setTimeout(() => {{ window.{_LOGGING_OUT} = false }}, 60000);  // still here: it has failed
}}"""
_WATCH_SESSION = f"""setInterval(async () => {{
    const answer = await fetch("{SESSION_PATH}").catch(() => null);
    if (answer?.status === 401) {_TO_LOGIN};
}}, 4000)"""
"""A session may end while a tab has no socket, which it gets only with a session."""

Work = Callable[[], Awaitable[None]]


class Frame:
    """The surroundings of one page in one browser tab."""

    def __init__(self, console: Console, active: str) -> None:
        self.console = console
        self._active = active
        self._problem = ""
        theme = ui.context.client.request.cookies.get(_THEME_COOKIE)
        self._dark = ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
        ui.colors(
            primary="#0e7490",
            secondary="#475569",
            accent="#7c3aed",
            positive="#15803d",
            negative="#dc2626",
            warning="#d97706",
            info="#0369a1",
        )
        ui.add_head_html('<link rel="stylesheet" href="/style/console.css">')
        if console.user is not None:
            ui.add_head_html(f"<script>{_WATCH_SESSION}</script>")
        self._build_header()
        self._build_navigation()
        self._keys = self._build_help()
        ui.keyboard(on_key=self._on_key)
        self._banner = ui.element("div").classes("m-banner").props('role="alert"')
        with self._banner:
            ui.icon("cloud_off")
            self._banner_text = ui.label()
        self._banner.set_visibility(False)
        self.body = ui.element("div").classes("m-page")
        self._tick()
        ui.timer(1.0, self._tick)

    # What pages use

    def every(self, seconds: float, work: Work) -> None:
        """When the browser has the page, and again so many seconds after each time: nobody waits
        for a page because a cluster is slow."""

        async def guarded() -> None:
            try:
                await work()
            except EXPECTED as error:
                self._problem = failure_text(error)
            else:
                self._problem = ""
            self._tick()

        ui.timer(seconds, guarded)

    async def attempt(self, work: Awaitable[object], done: str = "") -> bool:
        """Do what a person asked for, and say how it went."""
        try:
            await work
        except EXPECTED as error:
            ui.notify(failure_text(error), type="negative", multi_line=True, close_button="OK")
            return False
        if done:
            ui.notify(done, type="positive")
        return True

    # Its parts

    def _build_header(self) -> None:
        with ui.header().classes("m-header"):
            menu = ui.button(icon="menu").on("click", js_handler=_TOGGLE_NAVIGATION)
            menu.props('flat round dense aria-label="Navigation"').classes("m-menu")
            with ui.link(target="/").classes("m-brand"):
                ui.icon("water")
                ui.label("Moldau")
            ui.space()
            if not self.console.may_change:
                ui.label("read-only").classes("m-tag")
            if self.console.user is not None:
                self._build_user(self.console.user)
            self._state = ui.label().classes("m-state")
            ui.button(icon="contrast", on_click=self._switch_theme).props(
                'flat round dense aria-label="Light or dark"'
            )
            ui.button(icon="keyboard", on_click=lambda: self._keys.open()).props(
                'flat round dense aria-label="Keys"'
            ).classes("m-wide")

    def _build_user(self, user: str) -> None:
        """A form of its own: it works, and ends the session, whatever became of the socket."""
        form = ui.element("form").props(f'method=post action="{LOGOUT_PATH}"').classes("m-user")
        with form.on("submit", js_handler=_LOG_OUT):
            ui.label(user).classes("m-tag m-wide").props("title=logged-in")
            ui.button(icon="logout").props(
                'flat round dense type=submit aria-label="Log out" title="Log out"'
            )

    def _build_navigation(self) -> None:
        with ui.element("nav").classes("m-nav"):
            for key, label, path, icon in NAVIGATION:
                with ui.link(target=path).classes("m-nav-link") as link:
                    ui.icon(icon)
                    ui.label(label)
                    ui.label(key).classes("m-key m-wide")
                if path == self._active:
                    link.classes("m-nav-active").props('aria-current="page"')
            ui.space()
            ui.label(self.console.settings.bootstrap.replace(",", ", ")).classes("m-faint m-break")
            ui.label(f"Moldau {__version__}").classes("m-faint")

    def _build_help(self) -> ui.dialog:
        with ui.dialog() as dialog, ui.card().classes("m-dialog"):
            ui.label("Keys").classes("m-title")
            with ui.element("div").classes("m-keys"):
                for key, label in _KEYS:
                    ui.label(key).classes("m-key")
                    ui.label(label)
        return dialog

    async def _on_key(self, event: KeyEventArguments) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.meta:
            return
        key = event.key.name
        if key == "?":
            self._keys.open()
        elif key == "d":
            await self._switch_theme()
        elif key == "/":
            ui.run_javascript(f"document.querySelector('{_SEARCH}')?.focus()")
        else:
            for known, _, path, _ in NAVIGATION:
                if key == known:
                    ui.navigate.to(path)

    async def _switch_theme(self) -> None:
        """Kept by the browser: it lasts longer than a session."""
        is_dark = self._dark.value
        if is_dark is None:
            is_dark = await ui.run_javascript("Quasar.Dark.isActive")
        self._dark.value = not is_dark
        word = "light" if is_dark else "dark"
        ui.run_javascript(
            f"document.cookie = '{_THEME_COOKIE}={word};path=/;max-age=31536000;samesite=lax'"
        )

    def _tick(self) -> None:
        if self.console.is_over:
            ui.run_javascript(_TO_LOGIN)
            return
        watch = self.console.watch
        watch.keep_watching()
        trouble, view = watch.trouble, watch.view
        if trouble is not None:
            since = duration_text((self.console.clock.now_ms() - trouble.since_ms) // 1000)
            self._say(f"The cluster is away for {since}: {trouble.message}. Trying again.")
            self._set_state("away", "m-bad")
        elif view is None:
            self._set_state("connecting", "m-unknown")
        else:
            self._say(self._problem)
            count = len(view.cluster.brokers)
            self._set_state(f"{count} broker{'' if count == 1 else 's'}", "m-good")

    def _say(self, text: str) -> None:
        if self._banner_text.text != text:
            self._banner_text.set_text(text)
        if self._banner.visible != bool(text):
            self._banner.set_visibility(bool(text))

    def _set_state(self, text: str, look: str) -> None:
        if self._state.text != text:
            self._state.set_text(text)
            self._state.classes(replace=f"m-state {look}")


@asynccontextmanager
async def page_frame(title: str, active: str) -> AsyncIterator[Frame]:
    """A page, with the first answer of the cluster there if it comes soon."""
    console: Console = ui.context.client.request.state.console  # handed in by a guard
    ui.page_title(f"{title} · Moldau")
    await console.watch.wait_until_answered(_FIRST_ANSWER_SECONDS)
    frame = Frame(console, active)
    with frame.body:
        yield frame


def heading(text: str, subtitle: str = "") -> ui.label:
    """The title of a page; gives back the line beneath it, which may change."""
    with ui.element("div").classes("m-heading"):
        ui.label(text).classes("m-h1 m-break").props("role=heading aria-level=1")
        return ui.label(subtitle).classes("m-faint")


def topic_path(name: str, tab: str = "") -> str:
    return f"/topics/{quote(name, safe='')}" + (f"/{tab}" if tab else "")


def group_path(group_id: str) -> str:
    """Names of groups may have anything in them, slashes too."""
    return f"/group?id={quote(group_id, safe='')}"


# Settings of a topic or a broker: what they are, where they come from, and how to change them


_CONFIG_COLUMNS = (
    TableColumn(name="name", label="Setting", kind="open"),
    TableColumn(name="value", label="Value", kind="mono"),
    TableColumn(name="source", label="From", wide=True),
    TableColumn(name="fallback", label="Otherwise", kind="mono", wide=True),
)


class ConfigPanel:
    """A table of settings; opening one shows its documentation, and edits it where that may be."""

    def __init__(self, frame: Frame, resource: ConfigResource) -> None:
        self._frame = frame
        self._resource = resource
        self._rows: list[ConfigRow] = []
        self._only_set = False
        with ui.element("section").classes("m-card"):
            ui.label("Settings").classes("m-title")
            self._table = PagedTable(
                frame,
                _CONFIG_COLUMNS,
                self._load,
                empty="No setting is like that",
                search="Find a setting",
            )
            self._table.on_open(self._open)
            with self._table.toolbar:
                ui.checkbox("only what was set", on_change=lambda e: self._choose(bool(e.value)))

    async def refresh(self) -> None:
        self._rows = await read_configs(self._frame.console.cluster, self._resource)
        await self._table.refresh()

    async def _choose(self, only_set: bool) -> None:
        self._only_set = only_set
        await self._table.reload()

    async def _load(self, request: PageRequest) -> Page[Row]:
        chosen = choose_configs(self._rows, request.search, only_set=self._only_set)
        page = cut_page(chosen, request)
        rows: list[dict[str, object]] = [
            {
                "id": row.name,
                "name": row.name,
                "value": row.value,
                "source": row.source,
                "fallback": "" if not row.is_set else row.fallback,
            }
            for row in page.rows
        ]
        return page.with_rows(rows)

    async def _open(self, name: str) -> None:
        row = next((one for one in self._rows if one.name == name), None)
        if row is None:
            return
        with opened_dialog(row.name) as dialog:
            if row.documentation:
                ui.label(row.documentation).classes("m-prose")
            ui.label(f"From: {row.source}").classes("m-faint")
            if row.is_set and row.fallback is not None:
                ui.label(f"Without it: {row.fallback or '(empty)'}").classes("m-faint")
            value = ui.input("Value", value=row.value).props("outlined dense").classes("m-full")
            may_change = row.is_editable and self._frame.console.may_change
            value.set_enabled(may_change)
            with ui.element("div").classes("m-buttons"):
                ui.button("Close", on_click=dialog.close).props("flat")
                if may_change and row.is_set:
                    ui.button(
                        "Remove", on_click=lambda: self._change(dialog, plan_removal(row))
                    ).props("flat color=negative")
                if may_change:
                    ui.button(
                        "Set", on_click=lambda: self._change(dialog, plan_edit(row, value.value))
                    )
            if not row.is_editable:
                ui.label("This one cannot be changed while the broker runs.").classes("m-faint")

    async def _change(self, dialog: ui.dialog, edit: ConfigEdit | None) -> None:
        if edit is None:
            ui.notify("That is what it is already")
            return
        if not await confirm(f"Change {self._resource}?", edit.message, "Change"):
            return
        work = change_config(self._frame.console.cluster, self._resource, edit)
        if await self._frame.attempt(work, f"{edit.change.name} was changed"):
            dialog.close()
            await self._frame.attempt(self.refresh())
