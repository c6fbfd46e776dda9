"""Windows over a page, and questions before something is changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from nicegui import ui

Action = Callable[[], Awaitable[None]]


@contextmanager
def opened_dialog(title: str, *, is_wide: bool = False) -> Iterator[ui.dialog]:
    """One that is open, with its title; what is made in the block is in it. It is gone when it was
    closed."""
    classes = "m-dialog m-record" if is_wide else "m-dialog"
    with ui.dialog(value=True) as dialog, ui.card().classes(classes):
        dialog.on("hide", dialog.delete)
        ui.label(title).classes("m-title m-break")
        yield dialog


def add_buttons(
    dialog: ui.dialog, verb: str, on_save: Action, *, removal: str = "", on_remove: Action
) -> None:
    """Of a dialog about one thing. With `removal`, a button that takes it away stands apart."""
    with ui.element("div").classes("m-buttons"):
        if removal:
            ui.button(removal, on_click=on_remove).props("flat color=negative")
            ui.space()
        ui.button("Cancel", on_click=dialog.close).props("flat")
        ui.button(verb, on_click=on_save)


async def confirm(question: str, details: str, verb: str, *, typed: str = "") -> bool:
    """Ask; with `typed`, the person has to write that word, for what cannot be undone."""
    with ui.dialog(value=True).props("persistent") as dialog, ui.card().classes("m-dialog"):
        ui.label(question).classes("m-title m-break")
        ui.label(details).classes("m-prose m-break")
        box = None
        if typed:
            box = ui.input(f"Write {typed} to go on").props("outlined dense autofocus")
            box.classes("m-full")
        with ui.element("div").classes("m-buttons"):
            ui.button("Cancel", on_click=lambda: dialog.submit(False)).props("flat")
            go_on = ui.button(verb, on_click=lambda: dialog.submit(True))
            go_on.props("color=negative" if typed else "color=primary")
            if box is not None:
                go_on.bind_enabled_from(box, "value", lambda value: value == typed)
    answer = await dialog
    dialog.delete()
    return bool(answer)
