"""One transactional id: what is open of it, and how to end that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from moldau.client.transaction_values import ONGOING, TransactionDescription
from moldau.console.data.failures import EXPECTED, failure_text
from moldau.console.data.transactions import abort_transaction, read_transaction
from moldau.console.pages.dialogs import confirm, opened_dialog
from moldau.console.pages.frame import Frame
from moldau.console.rules.group_rows import assignment_text
from moldau.console.rules.transaction_rows import transaction_facts

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
