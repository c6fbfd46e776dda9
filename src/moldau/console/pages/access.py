"""Who may do what: users, access control lists and quotas.

Users and quotas are changed here by whoever the cluster lets; lists with `moldau acls`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from moldau.console.access import (
    acl_rows,
    change_quota,
    check_password,
    delete_user,
    find_rights,
    limit_text,
    parse_entity,
    parse_limit,
    parse_name,
    quota_id,
    quota_rows,
    quotas_of,
    set_password,
    user_rows,
)
from moldau.console.pages.widgets import (
    Frame,
    PagedTable,
    Row,
    TableColumn,
    add_buttons,
    confirm,
    heading,
    opened_dialog,
    page_frame,
)
from moldau.console.paging import Page, PageRequest, cut_page
from moldau.errors import (
    ClusterAuthorizationError,
    ConfigurationError,
    SecurityDisabledError,
    UnsupportedByBrokerError,
)
from moldau.model import AclOperation
from moldau.quotas import QuotaEntity, QuotaKind

_USER_COLUMNS = (
    TableColumn(name="user", label="User", kind="open"),
    TableColumn(name="mechanisms", label="Logs in with", wide=True),
    TableColumn(name="iterations", label="Iterations", kind="number", wide=True),
)
_ACL_COLUMNS = (
    TableColumn(name="principal", label="Principal", kind="mono"),
    TableColumn(name="permission", label="May", kind="state"),
    TableColumn(name="operation", label="Operation"),
    TableColumn(name="resource", label="Resource", kind="mono"),
    TableColumn(name="pattern", label="Pattern", wide=True),
    TableColumn(name="host", label="From host", wide=True),
)
_QUOTA_COLUMNS = (
    TableColumn(name="entity", label="Of", kind="open"),
    TableColumn(name="quota", label="Quota"),
    TableColumn(name="limit", label="Limit", kind="number"),
)
_OPEN = "No authorizer is set up: whoever can connect may do everything."
_HIDDEN = "The cluster does not let you see this."
_UNKNOWN = "This cluster does not tell."
_USERS = "Those who stand in the brokers' settings (sasl.jaas.config) are not listed."


def register() -> None:
    @ui.page("/access", response_timeout=15)
    async def show_access() -> None:
        async with page_frame("Access", "/access") as frame:
            page = AccessPage(frame)
            frame.every(10.0, page.refresh)


class AccessPage:
    """See the module. A part that the cluster keeps to itself says so, and the others are shown."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._admin = frame.console.cluster.admin
        self._rights: frozenset[AclOperation] = frozenset()
        self._limits: dict[str, tuple[QuotaEntity, str, float]] = {}
        heading("Access", "Who may log in, who may do what, and how much of it")
        self._users = _Part(
            frame, "Users", _USER_COLUMNS, self._load_users, "No users", "Find a user", note=_USERS
        )
        self._users.table.on_open(self._open_user)
        self._users.add_button("Add user", "person_add", lambda: self._open_user(None))
        self._acls = _Part(
            frame,
            "Access control lists",
            _ACL_COLUMNS,
            self._load_acls,
            "There is no such entry",
            "Find a principal, a resource or an operation",
        )
        self._quotas = _Part(frame, "Quotas", _QUOTA_COLUMNS, self._load_quotas, "No quota is set")
        self._quotas.table.on_open(self._open_quota)
        self._quotas.add_button("Set quota", "speed", lambda: self._open_quota(None))

    async def refresh(self) -> None:
        self._rights = await find_rights(self._frame.console.cluster)
        self._users.allow(self._may(AclOperation.ALTER))
        self._quotas.allow(self._may(AclOperation.ALTER_CONFIGS))
        for part in (self._users, self._acls, self._quotas):
            await part.refresh()

    def _may(self, operation: AclOperation) -> bool:
        return self._frame.console.may_change and operation in self._rights

    def _require(self, operation: AclOperation) -> bool:
        """Whether it may be changed; says why not."""
        if not self._frame.console.may_change:
            ui.notify("This console is read-only")
        elif operation not in self._rights:
            ui.notify("The cluster does not let you change this")
        return self._may(operation)

    # Users

    async def _load_users(self, request: PageRequest) -> Page[Row]:
        found = await self._admin.describe_scram_credentials()
        return cut_page(user_rows(found, request.search), request)

    async def _open_user(self, name: str | None) -> None:
        if self._require(AclOperation.ALTER):
            open_user(self._frame, name, self._users.refresh)

    # Access control lists

    async def _load_acls(self, request: PageRequest) -> Page[Row]:
        return cut_page(acl_rows(await self._admin.describe_acls(), request.search), request)

    # Quotas

    async def _load_quotas(self, request: PageRequest) -> Page[Row]:
        found = await self._admin.describe_client_quotas()
        self._limits = {
            quota_id(entity, name): (entity, name, limit)
            for entity, limits in found.items()
            for name, limit in limits.items()
        }
        return cut_page(quota_rows(found), request)

    async def _open_quota(self, row_id: str | None) -> None:
        if self._require(AclOperation.ALTER_CONFIGS):
            chosen = None if row_id is None else self._limits.get(row_id)
            open_quota(self._frame, chosen, self._quotas.refresh)


class _Part:
    """A card with a table, and a line that says why it is empty."""

    def __init__(
        self,
        frame: Frame,
        title: str,
        columns: tuple[TableColumn, ...],
        load: Callable[[PageRequest], Awaitable[Page[Row]]],
        empty: str,
        search: str = "",
        note: str = "",
    ) -> None:
        self._load = load
        self._note = note
        self._button: ui.button | None = None
        with ui.element("section").classes("m-card"):
            ui.label(title).classes("m-title")
            self.table = PagedTable(frame, columns, self._load_or_say, empty=empty, search=search)
            self._line = ui.label(note).classes("m-faint")
            self._line.set_visibility(bool(note))

    def add_button(self, text: str, icon: str, work: Callable[[], Awaitable[None]]) -> None:
        """Hidden until `allow` shows it."""
        with self.table.toolbar:
            ui.space()
            self._button = ui.button(text, icon=icon, on_click=work).props("unelevated")
            self._button.set_visibility(False)

    def allow(self, may_change: bool) -> None:
        if self._button is not None and self._button.visible != may_change:
            self._button.set_visibility(may_change)

    async def refresh(self) -> None:
        await self.table.refresh()

    async def _load_or_say(self, request: PageRequest) -> Page[Row]:
        try:
            page = await self._load(request)
        except ClusterAuthorizationError:
            return self._say(_HIDDEN)
        except SecurityDisabledError:
            return self._say(_OPEN)
        except UnsupportedByBrokerError:
            return self._say(_UNKNOWN)
        self._say("")
        return page

    def _say(self, refusal: str) -> Page[Row]:
        """In the place of the table, which would look as if there were nothing."""
        text = refusal or self._note
        if self._line.text != text or self.table.element.visible == bool(refusal):
            self._line.set_text(text)
            self._line.set_visibility(bool(text))
            self.table.element.set_visibility(not refusal)
            self.table.toolbar.set_visibility(not refusal)
        return Page((), 0)


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
            await _save_user(frame, str(wanted), chosen, dialog, on_done)

        async def remove() -> None:
            if user is not None and await _remove_user(frame, user):
                dialog.close()
                await frame.attempt(on_done())

        again.on("keydown.enter", save)
        verb, removal = ("Add", "") if user is None else ("Change password", "Remove user")
        add_buttons(dialog, verb, save, removal=removal, on_remove=remove)


def _password_box(label: str) -> ui.input:
    box = ui.input(label, password=True, password_toggle_button=True)
    return box.props("outlined dense autocomplete=new-password").classes("m-full")


async def _save_user(
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


async def _remove_user(frame: Frame, user: str) -> bool:
    if not await confirm(f"Remove {user}?", _WARNING, "Remove", typed=user):
        return False
    return await frame.attempt(delete_user(frame.console.cluster, user), f"{user} was removed")


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
            if quota is not None and await _remove_quota(frame, quota):
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


async def _remove_quota(frame: Frame, quota: Quota) -> bool:
    entity, name, _ = quota
    if not await confirm(f"Remove {name} of {entity}?", "It is not limited any more.", "Remove"):
        return False
    work = change_quota(frame.console.cluster, entity, name, None)
    return await frame.attempt(work, f"{name} of {entity} was removed")
