"""Transactional ids of all coordinators; those with an open transaction first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from moldau.client.admin.values import ONGOING, TransactionDescription
from moldau.console.cluster import EXPECTED, failure_text
from moldau.console.groups import assignment_text
from moldau.console.pages.widgets import (
    Frame,
    PagedTable,
    Row,
    TableColumn,
    confirm,
    heading,
    opened_dialog,
    page_frame,
)
from moldau.console.paging import Page, PageRequest, cut_page
from moldau.console.transactions import (
    TransactionRow,
    abort_transaction,
    choose_transactions,
    complete_rows,
    list_transactions,
    read_transaction,
    transaction_facts,
)
from moldau.ops.formatting import count_text, duration_text

_COLUMNS = (
    TableColumn(name="name", label="Transactional id", kind="open"),
    TableColumn(name="state", label="State", kind="state"),
    TableColumn(name="age", label="Open for", kind="number"),
    TableColumn(name="timeout", label="Time-out", kind="number", wide=True),
    TableColumn(name="partitions", label="Partitions", kind="number", wide=True),
    TableColumn(name="producer", label="Producer id", kind="number", wide=True),
    TableColumn(name="coordinator", label="Coordinator", kind="number", wide=True),
)


def register() -> None:
    @ui.page("/transactions", response_timeout=15)
    async def show_transactions() -> None:
        async with page_frame("Transactions", "/transactions") as frame:
            console = frame.console
            heading("Transactions", "An open one holds up who reads committed records")
            only_open = False

            async def load(request: PageRequest) -> Page[Row]:
                found = await list_transactions(console.cluster)
                chosen = choose_transactions(found, request, only_open=only_open)
                page = cut_page(chosen, request)
                rows = await complete_rows(console.cluster, page.rows, console.clock)
                return page.with_rows([_to_row(row) for row in rows])

            async def choose(wanted: bool) -> None:
                nonlocal only_open
                only_open = wanted
                await table.reload()

            with ui.element("section").classes("m-card"):
                table = PagedTable(
                    frame,
                    _COLUMNS,
                    load,
                    empty="No transactional ids found",
                    search="Find a transactional id",
                )
                table.on_open(lambda name: open_transaction(frame, name, table.refresh))
                with table.toolbar:
                    ui.checkbox("only open ones", on_change=lambda e: choose(bool(e.value)))
            frame.every(3.0, table.refresh)


def _to_row(row: TransactionRow) -> dict[str, object]:
    return {
        "id": row.transactional_id,
        "name": row.transactional_id,
        "state": row.state,
        "severity": 2 if row.is_late else 1 if row.is_open else 0,
        "age": duration_text(row.age_seconds) if row.is_open else "",
        "timeout": duration_text(row.timeout_seconds),
        "partitions": count_text(row.partitions),
        "producer": str(row.producer_id),
        "coordinator": str(row.coordinator_id),
    }


_WARNING = (
    "Its records stay invisible to readers of committed records, and its producer is fenced: it "
    "can write nothing more until it is started anew. Abort only what nobody will end."
)


async def open_transaction(
    frame: Frame, transactional_id: str, on_done: Callable[[], Awaitable[None]]
) -> None:
    try:
        found = await read_transaction(frame.console.cluster, transactional_id)
    except EXPECTED as error:
        ui.notify(failure_text(error), type="negative")
        return
    with opened_dialog(transactional_id) as dialog:
        with ui.element("div").classes("m-headers"):
            for name, text in transaction_facts(found, frame.console.clock.now_ms()):
                ui.label(name).classes("m-faint")
                ui.label(text).classes("m-break")
            ui.label("Partitions").classes("m-faint")
            ui.label(assignment_text(found.partitions, 20) or "none").classes("m-break")
        with ui.element("div").classes("m-buttons"):
            ui.button("Close", on_click=dialog.close).props("flat")
            if frame.console.may_change and found.state == ONGOING:

                async def abort() -> None:
                    if await _abort(frame, found):
                        dialog.close()
                        await frame.attempt(on_done())

                ui.button("Abort", on_click=abort).props("flat color=negative")


async def _abort(frame: Frame, found: TransactionDescription) -> bool:
    name = found.transactional_id
    if not await confirm(f"Abort the transaction of {name}?", _WARNING, "Abort", typed=name):
        return False
    work = abort_transaction(frame.console.cluster, name)
    return await frame.attempt(work, f"The transaction of {name} was aborted")
