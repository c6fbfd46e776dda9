"""Transactional ids of all coordinators; those with an open transaction first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from nicegui import ui

from moldau.client.admin.values import (
    ONGOING,
    UNDECIDED_OR_COMPLETING,
    TransactionDescription,
    TransactionListing,
)
from moldau.clock import Clock
from moldau.console.cluster import EXPECTED, Cluster, failure_text
from moldau.console.groups import assignment_text
from moldau.console.pages.widgets import (
    Frame,
    LoadedPage,
    PagedTable,
    TableColumn,
    confirm,
    heading,
    opened_dialog,
    page_frame,
)
from moldau.console.paging import PageRequest, cut_page, matches, natural_key
from moldau.errors import KafkaError
from moldau.ops.formatting import count_text, duration_text, time_text

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
                found = await _list_transactions(console.cluster)
                chosen = choose_transactions(found, request, only_open=only_open)
                page = cut_page(chosen, request)
                rows = await _complete_rows(console.cluster, page.rows, console.clock)
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


async def _list_transactions(cluster: Cluster) -> Collection[TransactionListing]:
    return (await cluster.admin.list_transactions()).values()


async def _complete_rows(
    cluster: Cluster, rows: Collection[TransactionRow], clock: Clock
) -> list[TransactionRow]:
    if not rows:
        return []
    described = await cluster.admin.describe_transactions([row.transactional_id for row in rows])
    return with_details(rows, described, clock.now_ms())


async def read_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    found = (await cluster.admin.describe_transactions((transactional_id,)))[transactional_id]
    if isinstance(found, KafkaError):
        raise found
    return found


async def abort_transaction(cluster: Cluster, transactional_id: str) -> None:
    """As a producer with this id that starts anew: its coordinator aborts what is open, in all
    partitions, and its former producer may write nothing more."""
    cluster.require_writable()
    async with cluster.transactional_producer(transactional_id) as producer:
        await producer.begin_transaction()
        await producer.abort_transaction()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRow:
    """A transactional id; age and partitions are those of what is open."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator_id: int
    age_seconds: float | None = None
    timeout_seconds: float | None = None
    partitions: int | None = None

    @property
    def is_open(self) -> bool:
        return self.state in UNDECIDED_OR_COMPLETING

    @property
    def is_late(self) -> bool:
        """Open for longer than its producer has asked for: its coordinator should have ended it."""
        return (
            self.is_open
            and self.age_seconds is not None
            and self.timeout_seconds is not None
            and self.age_seconds > self.timeout_seconds
        )


def choose_transactions(
    listings: Collection[TransactionListing], request: PageRequest, *, only_open: bool
) -> Sequence[TransactionRow]:
    rows = [
        TransactionRow(
            transactional_id=one.transactional_id,
            state=one.state,
            producer_id=one.producer_id,
            coordinator_id=one.coordinator_id,
        )
        for one in listings
        if matches(one.transactional_id, request.search)
        and (not only_open or one.state in UNDECIDED_OR_COMPLETING)
    ]
    return sorted(rows, key=lambda row: (not row.is_open, natural_key(row.transactional_id)))


def with_details(
    rows: Collection[TransactionRow],
    described: Mapping[str, TransactionDescription | KafkaError],
    now_ms: int,
) -> list[TransactionRow]:
    """The rows of a page, with what their coordinators know beside."""
    return [_with_details(row, described.get(row.transactional_id), now_ms) for row in rows]


def _with_details(
    row: TransactionRow, found: TransactionDescription | KafkaError | None, now_ms: int
) -> TransactionRow:
    if not isinstance(found, TransactionDescription):
        return row
    started = found.started_ms
    return TransactionRow(
        transactional_id=row.transactional_id,
        state=found.state,
        producer_id=found.producer_id,
        coordinator_id=found.coordinator_id,
        age_seconds=None if started is None else max(0, now_ms - started) / 1000,
        timeout_seconds=found.timeout_ms / 1000,
        partitions=len(found.partitions),
    )


def transaction_facts(found: TransactionDescription, now_ms: int) -> Sequence[tuple[str, str]]:
    """What a page says of one transactional id, name by name."""
    started = found.started_ms if found.state in UNDECIDED_OR_COMPLETING else None
    age = None if started is None else max(0, now_ms - started) / 1000
    since = "nothing is open" if started is None else f"{time_text(started)} UTC"
    return (
        ("State", found.state),
        ("Open since", since if age is None else f"{since}, for {duration_text(age)}"),
        ("Time-out", duration_text(found.timeout_ms / 1000)),
        ("Producer", f"id {found.producer_id}, epoch {found.producer_epoch}"),
        ("Coordinator", f"broker {found.coordinator_id}"),
    )
