"""What a person asks the message browser for: where to begin, which partition, what to find."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from nicegui import ui

from moldau.console.rules.browse_links import Browsing, read_number
from moldau.console.rules.record_search import Search
from moldau.errors import ConfigurationError

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
