"""Transactional ids of all coordinators; those with an open transaction first."""

from __future__ import annotations

from nicegui import ui

from moldau.console.data.transactions import complete_rows, list_transactions
from moldau.console.pages.frame import heading, page_frame
from moldau.console.pages.tables import LoadedPage, PagedTable, TableColumn
from moldau.console.pages.transaction_dialog import open_transaction
from moldau.console.rules.paging import PageRequest, cut_page
from moldau.console.rules.transaction_rows import TransactionRow, choose_transactions
from moldau.console.rules.wording import count_text, duration_text

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

            async def load(request: PageRequest) -> LoadedPage:
                found = await list_transactions(console.cluster)
                chosen = choose_transactions(found, request, only_open=only_open)
                page = cut_page(chosen, request)
                rows = await complete_rows(console.cluster, page.rows, console.clock)
                return LoadedPage([_to_row(row) for row in rows], page.total, page.number)

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
