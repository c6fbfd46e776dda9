"""The message browser: newest records, from an offset or a time on, a search, a live tail."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from enum import StrEnum

from nicegui import Client, ui

from moldau.console.cluster import EXPECTED, failure_text
from moldau.console.pages.topics import topic_head
from moldau.console.pages.widgets import (
    Frame,
    PagedTable,
    Row,
    TableColumn,
    opened_dialog,
    page_frame,
)
from moldau.console.paging import Page, PageRequest
from moldau.console.record_view import (
    Format,
    Kept,
    KeptRecord,
    Shown,
    record_id,
    record_rows,
    show,
    to_csv,
    to_json_lines,
)
from moldau.console.records import (
    MAX_PARTITIONS,
    SEARCH_HITS,
    TAIL_RECORDS,
    Browsing,
    Cursor,
    Ranges,
    RecordPage,
    Search,
    SearchProgress,
    choose_partitions,
    find_bounds,
    find_times,
    forward_from,
    newest,
    parse_time,
    read_number,
    read_page,
    rest_of,
    search,
    tail,
)
from moldau.errors import ConfigurationError
from moldau.ops.formatting import time_text

_PAGE_RECORDS = 50
_COLUMNS = (
    TableColumn(name="offset", label="Offset", kind="open"),
    TableColumn(name="partition", label="Partition", kind="number"),
    TableColumn(name="time", label="Time (UTC)", kind="mono", wide=True),
    TableColumn(name="key", label="Key", kind="mono"),
    TableColumn(name="value", label="Value", kind="mono"),
    TableColumn(name="size", label="Size", kind="number", wide=True),
)


def register() -> None:
    @ui.page("/topics/{name}", response_timeout=15)
    async def show_messages(name: str) -> None:
        first = Browsing.read(ui.context.client.request.query_params)
        async with page_frame(name, "/topics") as frame:
            topic_head(frame, name, "")
            with ui.element("section").classes("m-card"):
                browser = MessageBrowser(frame, name, first)
            await browser.read()


class MessageBrowser:
    """One session's view of a topic. Keeps the records that it shows, cut, and no others."""

    def __init__(self, frame: Frame, topic: str, first: Browsing) -> None:
        self._frame = frame
        self._cluster = frame.console.cluster
        self._topic = topic
        self._opens_first = first.opens
        self._client = ui.context.client
        self._records: deque[KeptRecord] = deque(maxlen=max(TAIL_RECORDS, SEARCH_HITS))
        self._bounds: Ranges = {}
        self._cursor: Cursor | None = None
        self._left: Ranges = {}  # of a search that stopped before the end
        self._work: asyncio.Task[None] | None = None
        self._controls = MessageControls(first, on_read=self.read, on_stop=self.stop)
        with ui.element("div").classes("m-status"):
            self._spinner = ui.spinner(size="sm")
            self._status = ui.label().classes("m-faint").props('aria-live="polite"')
            self._progress = ui.linear_progress(0, show_value=False).classes("m-grow")
            ui.space()
            self._build_download()
        self._progress.set_visibility(False)
        self._table = PagedTable(
            frame, _COLUMNS, self._load, empty="No records here", rows_per_page=TAIL_RECORDS
        )
        self._table.element.props("hide-pagination")
        self._table.on_open(self._open)
        with ui.element("div").classes("m-buttons"):
            self._more = ui.button("More", on_click=self._read_more).props("flat")
        self._more.set_visibility(False)

    def _build_download(self) -> None:
        button = ui.button(icon="download").props('flat round dense aria-label="Download"')
        with button, ui.menu():
            ui.menu_item("What is shown, as JSON lines", lambda: self._download("jsonl"))
            ui.menu_item("What is shown, as CSV", lambda: self._download("csv"))

    # What is read

    async def read(self) -> None:
        """Begin anew, as the controls say."""
        await self.stop()
        self._records.clear()
        self._cursor = None
        self._left = {}
        try:
            wanted = self._controls.search
        except ConfigurationError as error:
            self._say(str(error))
            return
        self._remember_address()
        if self._controls.mode is Mode.LIVE:
            await self._begin(self._follow(wanted))
        elif wanted is not None:
            await self._begin(self._search_from_start(wanted))
        else:
            await self._begin(self._read_first())

    async def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def _read_more(self) -> None:
        await self.stop()
        wanted = self._controls.search
        if self._left and wanted is not None:
            await self._begin(self._search_in(wanted, self._left))
        elif self._cursor is not None:
            await self._begin(self._read_page(self._cursor))

    async def _begin(self, work: Awaitable[None]) -> None:
        """A page is waited for; a search or a tail goes on, and may be stopped."""

        async def guarded() -> None:
            with self._client:
                try:
                    await work
                except EXPECTED as error:
                    self._say(failure_text(error))
                finally:
                    self._show_running(False)

        self._show_running(True)
        self._more.set_visibility(False)
        self._work = asyncio.create_task(guarded(), name=f"browse {self._topic}")

    async def _find_bounds(self) -> None:
        self._bounds = await find_bounds(self._cluster, self._topic, self._controls.partition)

    async def _find_start(self) -> Cursor:
        await self._find_bounds()
        chosen = choose_partitions(self._bounds)
        bounds = {one: self._bounds[one] for one in chosen}
        mode, begin = self._controls.mode, self._controls.begin
        if mode is Mode.NEWEST:
            return newest(bounds)
        if mode is Mode.OFFSET:
            offset = read_number(begin)
            if offset is None:
                raise ConfigurationError("an offset is a number of 19 digits at most")
            return forward_from(dict.fromkeys(chosen, offset), bounds)
        timestamp_ms = parse_time(begin, self._frame.console.clock.now_ms())
        times = await find_times(self._cluster, chosen, timestamp_ms, bounds)
        return forward_from(times, bounds)

    async def _read_first(self) -> None:
        await self._read_page(await self._find_start())
        if self._opens_first and self._records:
            self._opens_first = False
            await self._open(record_id(self._records[0]))

    async def _read_page(self, cursor: Cursor) -> None:
        page: RecordPage = await read_page(
            self._cluster,
            cursor,
            self._bounds,
            _PAGE_RECORDS,
            read_committed=self._controls.committed_only,
        )
        self._records.clear()
        self._records.extend(page.records)
        self._cursor = page.cursor
        self._more.set_visibility(page.has_more)
        self._more.set_text("Older" if cursor.is_backward else "Next")
        await self._table.refresh()
        self._say(self._describe(len(page.records)))

    def _describe(self, count: int) -> str:
        filled = sum(not one.is_empty for one in self._bounds.values())
        if not filled:
            return "The topic is empty" if self._controls.partition is None else "Nothing is there"
        text = f"{count:,} record{'' if count == 1 else 's'}"
        if filled > MAX_PARTITIONS:
            text += (
                f" of the first {MAX_PARTITIONS} of {filled:,} partitions; choose one for others"
            )
        return text

    async def _search_from_start(self, wanted: Search) -> None:
        cursor = await self._find_start()
        is_newest = self._controls.mode is Mode.NEWEST
        ranges = self._bounds if is_newest else rest_of(cursor, self._bounds)
        await self._search_in(wanted, ranges)

    async def _search_in(self, wanted: Search, ranges: Ranges) -> None:
        self._records.clear()
        self._progress.set_visibility(True)
        found = search(
            self._cluster,
            wanted,
            ranges,
            read_committed=self._controls.committed_only,
            newest_first=self._controls.mode is Mode.NEWEST,
        )
        shown = -1
        async with aclosing(found) as steps:
            async for step in steps:
                self._show_progress(step)
                self._left = {} if step.is_done else step.left
                if len(step.hits) != shown:
                    shown = len(step.hits)
                    self._records.clear()
                    self._records.extend(step.hits)
                    await self._table.refresh()
                if not self._is_watched():
                    return
        self._more.set_visibility(bool(self._left))
        self._more.set_text("Search on")

    def _show_progress(self, step: SearchProgress) -> None:
        self._progress.set_value(step.scanned / step.total if step.total else 1.0)
        self._say(
            f"{len(step.hits):,} found in {step.scanned:,} of {step.total:,} offsets"
            + (", which is all" if step.is_done else "")
        )

    async def _follow(self, wanted: Search | None) -> None:
        """Until somebody stops it, or nobody looks any more."""
        await self._find_bounds()
        self._say("Waiting for records")
        records = tail(
            self._cluster,
            tuple(self._bounds),
            wanted,
            read_committed=self._controls.committed_only,
        )
        seen = 0
        async with aclosing(records) as turns:
            async for turn in turns:
                if not self._is_watched():
                    return
                seen += turn.seen
                self._records.extendleft(turn.records)
                if turn.seen:
                    await self._table.refresh()
                    self._say(f"{seen:,} came while you looked; the last {len(self._records)} here")

    # What is shown

    def _is_watched(self) -> bool:
        return self._client.id in Client.instances and not self._frame.console.is_over

    async def _load(self, _: PageRequest) -> Page[Row]:
        return Page(record_rows(tuple(self._records)), len(self._records))

    async def _open(self, row_id: str) -> None:
        for record in self._records:
            if record_id(record) == row_id:
                open_record(self._topic, record)
                return

    def _download(self, kind: str) -> None:
        records = tuple(self._records)
        if not records:
            ui.notify("Nothing is shown that could be downloaded")
            return
        write = to_csv if kind == "csv" else to_json_lines
        ui.download.content(write(self._topic, records), f"{self._topic}.{kind}")

    def _remember_address(self) -> None:
        """The browser's address shows the same again, to whoever gets it."""
        path = json.dumps(self._controls.browsing.path(self._topic))
        ui.run_javascript(f"history.replaceState(history.state, '', {path})")

    def _say(self, text: str) -> None:
        problem = self._cluster.decoder.problem
        self._status.set_text(f"{text}; not decoded: {problem}" if problem else text)

    def _show_running(self, is_running: bool) -> None:
        self._spinner.set_visibility(is_running)
        self._controls.show_running(is_running)
        if not is_running:
            self._progress.set_visibility(False)


Work = Callable[[], Awaitable[None]]


class Mode(StrEnum):
    NEWEST = "Newest"
    OFFSET = "From offset"
    TIME = "From time"
    LIVE = "Live"


class MessageControls:
    """A row of inputs; `browsing` and `search` are what they say now."""

    def __init__(self, first: Browsing, *, on_read: Work, on_stop: Work) -> None:
        self._on_read = on_read
        with ui.element("div").classes("m-toolbar"):
            self._mode = ui.select(
                [one.value for one in Mode], value=_mode_of(first).value, on_change=self._on_mode
            ).props('outlined dense aria-label="Where to begin"')
            begin = first.time or ("" if first.offset is None else str(first.offset))
            self._from = ui.input(value=begin).props("outlined dense").classes("m-from")
            self._from.on("keydown.enter", on_read)
            self._partition = ui.number(
                placeholder="all partitions", min=0, precision=0, value=first.partition
            )
            self._partition.props('outlined dense clearable aria-label="Partition"')
            self._partition.on("keydown.enter", on_read)
            self._search = ui.input(placeholder="Search records", value=first.search)
            self._search.props('outlined dense clearable type=search aria-label="Search"')
            self._search.classes("m-search").on("keydown.enter", on_read)
            self._build_search_options()
            self._committed = ui.checkbox("committed only")
            self._button = ui.button("Read", icon="play_arrow", on_click=on_read)
            self._stop_button = ui.button("Stop", icon="stop", on_click=on_stop)
            self._button.props("unelevated")
            self._stop_button.props("unelevated color=secondary")
        self._stop_button.set_visibility(False)
        self._show_from()

    def _build_search_options(self) -> None:
        with (
            ui.button(icon="tune").props('flat round dense aria-label="Where and how to look"'),
            ui.menu().props("no-parent-event=false"),
            ui.element("div").classes("m-menu-card"),
        ):
            ui.label("Search in").classes("m-label")
            self._in_key = ui.checkbox("keys", value=True)
            self._in_value = ui.checkbox("values", value=True)
            self._in_headers = ui.checkbox("headers")
            ui.label("For").classes("m-label")
            self._match_case = ui.checkbox("upper and lower case as typed")
            self._is_pattern = ui.checkbox("a regular expression")

    @property
    def mode(self) -> Mode:
        return Mode(self._mode.value)

    @property
    def partition(self) -> int | None:
        return None if self._partition.value is None else int(self._partition.value)

    @property
    def begin(self) -> str:
        """The text beside the mode: an offset or a time."""
        return (self._from.value or "").strip()

    @property
    def committed_only(self) -> bool:
        return bool(self._committed.value)

    @property
    def search(self) -> Search | None:
        if not self._search.value:
            return None
        search = Search(
            text=self._search.value,
            in_key=bool(self._in_key.value),
            in_value=bool(self._in_value.value),
            in_headers=bool(self._in_headers.value),
            match_case=bool(self._match_case.value),
            is_pattern=bool(self._is_pattern.value),
        )
        if not (search.in_key or search.in_value or search.in_headers):
            raise ConfigurationError("say where to search: in keys, values or headers")
        return search

    @property
    def browsing(self) -> Browsing:
        """As an address has it."""
        mode, begin = self.mode, self.begin
        return Browsing(
            partition=self.partition,
            offset=read_number(begin) if mode is Mode.OFFSET else None,
            time=begin if mode is Mode.TIME and begin else None,
            is_live=mode is Mode.LIVE,
            search=self._search.value or "",
        )

    def show_running(self, is_running: bool) -> None:
        self._stop_button.set_visibility(is_running)
        self._button.set_visibility(not is_running)

    async def _on_mode(self) -> None:
        self._show_from()
        if self.mode in (Mode.NEWEST, Mode.LIVE):
            await self._on_read()

    def _show_from(self) -> None:
        mode = self.mode
        self._from.set_visibility(mode in (Mode.OFFSET, Mode.TIME))
        self._from.props(
            'placeholder="an offset" aria-label="Offset"'
            if mode is Mode.OFFSET
            else 'placeholder="10m, 2h, or 2030-01-31T12:00" aria-label="Time"'
        )


def _mode_of(first: Browsing) -> Mode:
    if first.is_live:
        return Mode.LIVE
    if first.offset is not None:
        return Mode.OFFSET
    return Mode.TIME if first.time is not None else Mode.NEWEST


def open_record(topic: str, record: KeptRecord) -> None:
    title = f"{topic} · partition {record.partition} · offset {record.offset:,}"
    with opened_dialog(title, is_wide=True) as dialog:
        ui.label(
            f"{time_text(record.timestamp_ms)} UTC · {record.timestamp_ms} ms since 1970"
        ).classes("m-faint")
        _field("Key", record.key)
        _field("Value", record.value)
        if record.headers:
            ui.label(f"Headers ({len(record.headers)})").classes("m-label")
            with ui.element("div").classes("m-headers"):
                for name, value in record.headers:
                    ui.label(name).classes("m-mono m-break")
                    ui.label(show(value).text).classes("m-mono m-break")
        else:
            ui.label("No headers").classes("m-faint")
        link = Browsing(partition=record.partition, offset=record.offset, opens=True).path(topic)
        with ui.element("div").classes("m-buttons"):
            ui.button("Copy link", icon="link", on_click=lambda: _copy_link(link)).props("flat")
            ui.button("Close", on_click=dialog.close).props("flat")


def _copy_link(path: str) -> None:
    """The host is what this browser calls it. Without https there is no clipboard for scripts."""
    ui.run_javascript(f"""
        const link = location.origin + {json.dumps(path)};
        if (navigator.clipboard) navigator.clipboard.writeText(link);
        else window.prompt("The link to this record", link);
    """)


def _field(label: str, kept: Kept) -> None:
    shown = show(kept)
    head = ui.element("div").classes("m-field-head")
    text = ui.label(shown.text).classes("m-pre").props("tabindex=0")
    with head:
        ui.label(label).classes("m-label")
        remark = ui.label(shown.remark).classes("m-faint")
        ui.space()
        if kept.data is None:
            return

        def put(found: Shown) -> None:
            text.set_text(found.text)
            remark.set_text(f"{found.remark}, as {found.format.value}")

        has_schema = kept.decoding is not None
        ui.toggle(
            [one.value for one in Format if has_schema or one is not Format.SCHEMA],
            value=Format.AUTO.value,
            on_change=lambda event: put(show(kept, Format(event.value))),
        ).props("dense flat no-caps size=sm")
        ui.button(icon="content_copy", on_click=lambda: ui.clipboard.write(text.text)).props(
            f'flat round dense size=sm aria-label="Copy {label.lower()}"'
        )
