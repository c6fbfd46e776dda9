"""Moves a group to another place: says first where each partition would go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from moldau.client.rules.offset_targets import PlannedReset
from moldau.console.data.groups import SeenGroup, perform_reset, plan_group_reset
from moldau.console.pages.dialogs import opened_dialog
from moldau.console.pages.frame import Frame
from moldau.console.pages.tables import LoadedPage, PagedTable, TableColumn
from moldau.console.rules.paging import PageRequest, cut_page
from moldau.console.rules.reset_targets import PLACES, parse_target
from moldau.console.rules.wording import UNKNOWN, count_text, plural

_ALL = "all that it has read"
_COLUMNS = (
    TableColumn(name="partition", label="Partition"),
    TableColumn(name="before", label="Now", kind="number"),
    TableColumn(name="after", label="Then", kind="number"),
    TableColumn(name="change", label="Change", kind="number"),
)


def open_reset(
    frame: Frame, group_id: str, view: SeenGroup, on_done: Callable[[], Awaitable[None]]
) -> None:
    topics = sorted({row.partition.topic for row in view.rows})
    planned: Sequence[PlannedReset] = ()
    with opened_dialog(f"Reset {group_id}", is_wide=True) as dialog:
        ui.label(_advice(view)).classes("m-prose m-faint")
        with ui.element("div").classes("m-row"):
            topic = ui.select([_ALL, *topics], value=_ALL, label="Topic")
            place = ui.select(list(PLACES), value=PLACES[0], label="To")
            number = ui.input("Offset, time or count", placeholder="10m, 2030-01-31T12:00, -100")
            for box in (topic, place, number):
                box.props("outlined dense stack-label").classes("m-grow")

        async def load(request: PageRequest) -> LoadedPage:
            page = cut_page(planned, request)
            return LoadedPage([_to_row(row) for row in page.rows], page.total, page.number)

        async def look() -> None:
            nonlocal planned
            target = parse_target(place.value, number.value or "", frame.console.clock.now_ms())
            chosen = None if topic.value == _ALL else topic.value
            planned = await plan_group_reset(
                frame.console.cluster, group_id, chosen, target, is_shared=view.is_shared
            )
            await table.reload()
            go_on.set_enabled(bool(planned))

        async def perform() -> None:
            refused = await perform_reset(
                frame.console.cluster, group_id, planned, is_shared=view.is_shared
            )
            for error in refused.values():
                raise error
            dialog.close()
            await on_done()

        table = PagedTable(
            frame,
            _COLUMNS,
            load,
            empty="Preview says where each goes",
            rows_per_page=10,
        )
        with ui.element("div").classes("m-buttons"):
            ui.button("Cancel", on_click=dialog.close).props("flat")
            ui.button("Preview", on_click=lambda: frame.attempt(look())).props("flat")
            go_on = ui.button(
                "Reset", on_click=lambda: frame.attempt(perform(), f"{group_id} was reset")
            )
            go_on.set_enabled(False)


def _advice(view: SeenGroup) -> str:
    text = "The group must have no members when this is done."
    if view.member_count:
        text = f"The group has {plural(view.member_count, 'member')}: stop them first. {text}"
    if view.is_shared:
        text += " What is under way, and how often it was delivered, is forgotten."
    return text


def _to_row(row: PlannedReset) -> dict[str, object]:
    change = UNKNOWN if row.before is None else f"{row.after - row.before:+,}"
    return {
        "id": str(row.partition),
        "partition": str(row.partition),
        "before": count_text(row.before),
        "after": count_text(row.after),
        "change": change,
    }
