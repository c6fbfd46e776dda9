"""A user of the cluster: a new one, another password, or none any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from moldau.console.data.access import delete_user, set_password
from moldau.console.pages.dialogs import add_buttons, confirm, opened_dialog
from moldau.console.pages.frame import Frame
from moldau.console.rules.access_rows import check_password, parse_name
from moldau.errors import ConfigurationError

_ADVICE = (
    "The password is salted and hashed here; brokers never see it. What the user may do is up to "
    "the access control lists."
)
_WARNING = (
    "The user cannot log in any more. Who is connected stays so until the connection ends; access "
    "control lists that name the user stay, too."
)


def open_user(frame: Frame, user: str | None, on_done: Callable[[], Awaitable[None]]) -> None:
    """With None, somebody who is not there yet."""
    with opened_dialog("Add a user" if user is None else user) as dialog:
        ui.label(_ADVICE).classes("m-prose m-faint")
        name = None
        if user is None:
            name = ui.input("Name").props("outlined dense autofocus autocomplete=off")
            name.classes("m-full")
        label = "Password" if user is None else "New password"
        password, again = (_password_box(text) for text in (label, "The same again"))

        async def save() -> None:
            try:
                wanted = user if name is None else parse_name(name.value or "")
                chosen = check_password(password.value or "", again.value or "")
            except ConfigurationError as error:
                ui.notify(str(error), type="negative")
                return
            await _save(frame, str(wanted), chosen, dialog, on_done)

        async def remove() -> None:
            if user is not None and await _remove(frame, user):
                dialog.close()
                await frame.attempt(on_done())

        again.on("keydown.enter", save)
        verb, removal = ("Add", "") if user is None else ("Change password", "Remove user")
        add_buttons(dialog, verb, save, removal=removal, on_remove=remove)


def _password_box(label: str) -> ui.input:
    box = ui.input(label, password=True, password_toggle_button=True)
    return box.props("outlined dense autocomplete=new-password").classes("m-full")


async def _save(
    frame: Frame,
    user: str,
    password: str,
    dialog: ui.dialog,
    on_done: Callable[[], Awaitable[None]],
) -> None:
    warning = None

    async def work() -> None:
        nonlocal warning
        warning = await set_password(frame.console.cluster, user, password)

    if await frame.attempt(work(), f"The password of {user} was set"):
        if warning is not None:
            ui.notify(warning, type="warning", multi_line=True, close_button="OK", timeout=0)
        dialog.close()
        await frame.attempt(on_done())


async def _remove(frame: Frame, user: str) -> bool:
    if not await confirm(f"Remove {user}?", _WARNING, "Remove", typed=user):
        return False
    return await frame.attempt(delete_user(frame.console.cluster, user), f"{user} was removed")
