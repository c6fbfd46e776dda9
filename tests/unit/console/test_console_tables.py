"""Tables of the console: what a browser is told, and what it says by itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

pytest.importorskip("nicegui")

from nicegui import Client, ui

from moldau.console.pages.widgets import Frame, PagedTable, Row, TableColumn
from moldau.console.paging import Page, PageRequest


async def load(_: PageRequest) -> Page[Row]:
    return Page([{"id": "a"}], 40)


def test_a_browser_that_has_drawn_no_rows_yet_is_told_their_number_again() -> None:
    async def story() -> None:
        with Client(ui.page("/test"), request=None):
            column = TableColumn(name="id", label="Id")
            frame = cast("Frame", SimpleNamespace())
            table = PagedTable(frame, (column,), load, empty="No rows")
            drawn = dict(table.element.pagination)
            await table.refresh()
            told = table.element.pagination
            table.element.pagination = drawn  # comes when the page is drawn, after the rows
            await table.refresh()
        assert told["rowsNumber"] == 40
        assert table.element.pagination == told

    asyncio.run(story())
