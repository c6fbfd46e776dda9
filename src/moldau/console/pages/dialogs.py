"""Questions before something is changed."""

from __future__ import annotations

from nicegui import ui


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
