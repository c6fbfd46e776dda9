"""One quota: a new one, another limit, or none any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from moldau.console.data.access import change_quota
from moldau.console.pages.dialogs import add_buttons, confirm, opened_dialog
from moldau.console.pages.frame import Frame
from moldau.console.rules.access_rows import limit_text, parse_entity, parse_limit, quotas_of
from moldau.errors import ConfigurationError
from moldau.quotas.rules.entities import QuotaEntity, QuotaKind

_UNITS = (
    "Bytes a second for byte rates, percent of a broker's time for requests, partitions a second "
    "for mutations, connections a second for addresses. The name default stands for everybody "
    "without a quota of their own."
)

Quota = tuple[QuotaEntity, str, float]


def open_quota(frame: Frame, quota: Quota | None, on_done: Callable[[], Awaitable[None]]) -> None:
    """With None, one that is not there yet."""
    with opened_dialog("Set a quota" if quota is None else f"{quota[0]}") as dialog:
        ui.label(_UNITS).classes("m-prose m-faint")
        read = _ask_whose() if quota is None else lambda: quota[:2]
        if quota is not None:
            ui.label(quota[1]).classes("m-mono")
        limit = ui.input("Limit", value="" if quota is None else limit_text(quota[2]))
        limit.props("outlined dense inputmode=decimal").classes("m-full")

        async def save() -> None:
            try:
                entity, name = read()
                wanted = parse_limit((limit.value or "").strip())
            except ConfigurationError as error:
                ui.notify(str(error), type="negative")
                return
            work = change_quota(frame.console.cluster, entity, name, wanted)
            if await frame.attempt(work, f"{name} of {entity} was set"):
                dialog.close()
                await frame.attempt(on_done())

        async def remove() -> None:
            if quota is not None and await _remove(frame, quota):
                dialog.close()
                await frame.attempt(on_done())

        limit.on("keydown.enter", save)
        removal = "" if quota is None else "Remove quota"
        add_buttons(dialog, "Set", save, removal=removal, on_remove=remove)


def _ask_whose() -> Callable[[], tuple[QuotaEntity, str]]:
    with ui.element("div").classes("m-row"):
        boxes = [ui.input(label) for label in ("User", "Client id", "Address")]
        for box in boxes:
            box.props("outlined dense stack-label autocomplete=off").classes("m-grow")
    kinds = [kind.value for kind in QuotaKind]
    kind = ui.select(kinds, value=kinds[0], label="Quota").props("outlined dense")
    kind.classes("m-full")

    def read() -> tuple[QuotaEntity, str]:
        entity = parse_entity(*(box.value or "" for box in boxes))
        if kind.value not in quotas_of(entity):
            allowed = ", ".join(quotas_of(entity))
            raise ConfigurationError(f"{entity} has no {kind.value}, but {allowed}")
        return entity, str(kind.value)

    return read


async def _remove(frame: Frame, quota: Quota) -> bool:
    entity, name, _ = quota
    if not await confirm(f"Remove {name} of {entity}?", "It is not limited any more.", "Remove"):
        return False
    work = change_quota(frame.console.cluster, entity, name, None)
    return await frame.attempt(work, f"{name} of {entity} was removed")
