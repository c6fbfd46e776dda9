"""The message browser: newest records, from an offset or a time on, a search, a live tail."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from contextlib import aclosing
from enum import StrEnum

from nicegui import Client, ui

from moldau.console.console import Console
from moldau.console.data.failures import EXPECTED, failure_text
from moldau.console.data.records import (
    SEARCH_HITS,
    TAIL_RECORDS,
    RecordPage,
    SearchProgress,
    find_bounds,
    find_times,
    read_page,
    search,
    tail,
)
from moldau.console.pages.frame import Frame, page_frame
from moldau.console.pages.record_dialog import open_record
from moldau.console.pages.tables import LoadedPage, PagedTable, TableColumn
from moldau.console.pages.topic_tabs import topic_head
from moldau.console.rules.paging import PageRequest
from moldau.console.rules.record_view import KeptRecord, Search, record_rows
from moldau.console.rules.start_points import parse_time
from moldau.console.rules.windows import (
    MAX_PARTITIONS,
    Cursor,
    Ranges,
    choose_partitions,
    forward_from,
    newest,
    rest_of,
)
from moldau.errors import ConfigurationError

_PAGE_RECORDS = 50
_COLUMNS = (
    TableColumn(name="offset", label="Offset", kind="open"),
    TableColumn(name="partition", label="Partition", kind="number"),
    TableColumn(name="time", label="Time (UTC)", kind="mono", wide=True),
    TableColumn(name="key", label="Key", kind="mono"),
    TableColumn(name="value", label="Value", kind="mono"),
    TableColumn(name="size", label="Size", kind="number", wide=True),
)


class Mode(StrEnum):
    NEWEST = "Newest"
    OFFSET = "From offset"
    TIME = "From time"
    LIVE = "Live"


def register(console: Console) -> None:
    @ui.page("/topics/{name}", response_timeout=15)
    async def show_messages(name: str) -> None:
        async with page_frame(console, name, "/topics") as frame:
            topic_head(frame, name, "")
            with ui.element("section").classes("m-card"):
                browser = MessageBrowser(frame, name)
            await browser.read()


class MessageBrowser:
    """One session's view of a topic. Keeps the records that it shows, cut, and no others."""

    def __init__(self, frame: Frame, topic: str) -> None:
        self._frame = frame
        self._topic = topic
        self._client = ui.context.client
        self._records: deque[KeptRecord] = deque(maxlen=max(TAIL_RECORDS, SEARCH_HITS))
        self._bounds: Ranges = {}
        self._cursor: Cursor | None = None
        self._left: Ranges = {}  # of a search that stopped before the end
        self._work: asyncio.Task[None] | None = None
        self._build_controls()
        with ui.element("div").classes("m-status"):
            self._spinner = ui.spinner(size="sm")
            self._status = ui.label().classes("m-faint")
            self._progress = ui.linear_progress(0, show_value=False).classes("m-grow")
        self._progress.set_visibility(False)
        self._table = PagedTable(
            frame, _COLUMNS, self._load, empty="No records here", rows_per_page=TAIL_RECORDS
        )
        self._table.element.props("hide-pagination")
        self._table.on_open(self._open)
        with ui.element("div").classes("m-buttons"):
            self._more = ui.button("More", on_click=self._read_more).props("flat")
        self._more.set_visibility(False)

    # Controls

    def _build_controls(self) -> None:
        with ui.element("div").classes("m-toolbar"):
            self._mode = ui.select(
                [one.value for one in Mode], value=Mode.NEWEST.value, on_change=self._on_mode
            ).props('outlined dense aria-label="Where to begin"')
            self._from = ui.input(placeholder="0").props("outlined dense").classes("m-from")
            self._from.on("keydown.enter", self.read)
            self._partition = ui.number(placeholder="all partitions", min=0, precision=0)
            self._partition.props('outlined dense clearable aria-label="Partition"')
            self._partition.on("keydown.enter", self.read)
            self._search = ui.input(placeholder="Search keys and values").classes("m-search")
            self._search.props('outlined dense clearable type=search aria-label="Search"')
            self._search.on("keydown.enter", self.read)
            self._committed = ui.checkbox("committed only")
            self._button = ui.button("Read", icon="play_arrow", on_click=self.read)
            self._stop_button = ui.button("Stop", icon="stop", on_click=self.stop)
            self._button.props("unelevated")
            self._stop_button.props("unelevated color=secondary")
        self._from.set_visibility(False)
        self._stop_button.set_visibility(False)

    async def _on_mode(self) -> None:
        mode = Mode(self._mode.value)
        self._from.set_visibility(mode in (Mode.OFFSET, Mode.TIME))
        self._from.props(
            'placeholder="an offset"'
            if mode is Mode.OFFSET
            else 'placeholder="10m, 2h, or 2030-01-31T12:00"'
        )
        if mode in (Mode.NEWEST, Mode.LIVE):
            await self.read()

    # What is read

    async def read(self) -> None:
        """Begin anew, as the controls say."""
        await self.stop()
        self._records.clear()
        self._cursor = None
        self._left = {}
        if Mode(self._mode.value) is Mode.LIVE:
            await self._begin(self._follow())
        elif self._search.value:
            await self._begin(self._search_from_start())
        else:
            await self._begin(self._read_first())

    async def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    async def _read_more(self) -> None:
        await self.stop()
        if self._left:
            await self._begin(self._search_in(self._left))
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

    async def _find_start(self) -> Cursor:
        partition = self._partition.value
        self._bounds = await find_bounds(
            self._frame.console.cluster, self._topic, None if partition is None else int(partition)
        )
        chosen = choose_partitions(self._bounds)
        bounds = {one: self._bounds[one] for one in chosen}
        mode = Mode(self._mode.value)
        if mode is Mode.NEWEST:
            return newest(bounds)
        text = (self._from.value or "").strip()
        if mode is Mode.OFFSET:
            if not (text.isascii() and text.isdecimal()):
                raise ConfigurationError("an offset is a number")
            return forward_from(dict.fromkeys(chosen, int(text)), bounds)
        timestamp_ms = parse_time(text, self._frame.console.clock.now_ms())
        times = await find_times(self._frame.console.cluster, chosen, timestamp_ms, bounds)
        return forward_from(times, bounds)

    async def _read_first(self) -> None:
        await self._read_page(await self._find_start())

    async def _read_page(self, cursor: Cursor) -> None:
        page: RecordPage = await read_page(
            self._frame.console.cluster,
            cursor,
            self._bounds,
            _PAGE_RECORDS,
            read_committed=bool(self._committed.value),
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
            return "The topic is empty" if self._partition.value is None else "Nothing is there"
        text = f"{count:,} record{'' if count == 1 else 's'}"
        if filled > MAX_PARTITIONS:
            text += (
                f" of the first {MAX_PARTITIONS} of {filled:,} partitions; choose one for others"
            )
        return text

    async def _search_from_start(self) -> None:
        cursor = await self._find_start()
        is_newest = Mode(self._mode.value) is Mode.NEWEST
        await self._search_in(self._bounds if is_newest else rest_of(cursor, self._bounds))

    async def _search_in(self, ranges: Ranges) -> None:
        wanted = Search(text=self._search.value or "")
        self._records.clear()
        self._progress.set_visibility(True)
        found = search(
            self._frame.console.cluster,
            wanted,
            ranges,
            read_committed=bool(self._committed.value),
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

    async def _follow(self) -> None:
        """Until somebody stops it, or nobody looks any more."""
        await self._find_start_of_tail()
        self._say("Waiting for records")
        records = tail(
            self._frame.console.cluster,
            tuple(self._bounds),
            read_committed=bool(self._committed.value),
        )
        seen = 0
        async with aclosing(records) as turns:
            async for turn in turns:
                if not self._is_watched():
                    return
                seen += len(turn)
                self._records.extendleft(turn)
                if turn:
                    await self._table.refresh()
                    self._say(f"{seen:,} came while you looked; the last {len(self._records)} here")

    async def _find_start_of_tail(self) -> None:
        partition = self._partition.value
        self._bounds = await find_bounds(
            self._frame.console.cluster, self._topic, None if partition is None else int(partition)
        )

    # What is shown

    def _is_watched(self) -> bool:
        return self._client.id in Client.instances

    async def _load(self, _: PageRequest) -> LoadedPage:
        return LoadedPage(record_rows(tuple(self._records)), len(self._records))

    async def _open(self, row_id: str) -> None:
        for record in self._records:
            if f"{record.partition}-{record.offset}" == row_id:
                open_record(self._topic, record)
                return

    def _say(self, text: str) -> None:
        self._status.set_text(text)

    def _show_running(self, is_running: bool) -> None:
        self._spinner.set_visibility(is_running)
        self._stop_button.set_visibility(is_running)
        self._button.set_visibility(not is_running)
        if not is_running:
            self._progress.set_visibility(False)
