"""Who may do what: users, access control lists and quotas.

Users and quotas are changed here by whoever the cluster lets; lists with `moldau acls`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from moldau.console.data.access import find_rights
from moldau.console.pages.frame import Frame, heading, page_frame
from moldau.console.pages.quota_dialog import open_quota
from moldau.console.pages.tables import LoadedPage, PagedTable, TableColumn
from moldau.console.pages.user_dialog import open_user
from moldau.console.rules.access_rows import acl_rows, quota_id, quota_rows, user_rows
from moldau.console.rules.paging import PageRequest, cut_page
from moldau.errors import ClusterAuthorizationError, SecurityDisabledError, UnsupportedByBrokerError
from moldau.model.acls import AclOperation
from moldau.quotas.rules.entities import QuotaEntity

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

    async def _load_users(self, request: PageRequest) -> LoadedPage:
        found = await self._admin.describe_scram_credentials()
        page = cut_page(user_rows(found, request.search), request)
        return LoadedPage(page.rows, page.total, page.number)

    async def _open_user(self, name: str | None) -> None:
        if self._require(AclOperation.ALTER):
            open_user(self._frame, name, self._users.refresh)

    # Access control lists

    async def _load_acls(self, request: PageRequest) -> LoadedPage:
        page = cut_page(acl_rows(await self._admin.describe_acls(), request.search), request)
        return LoadedPage(page.rows, page.total, page.number)

    # Quotas

    async def _load_quotas(self, request: PageRequest) -> LoadedPage:
        found = await self._admin.describe_client_quotas()
        self._limits = {
            quota_id(entity, name): (entity, name, limit)
            for entity, limits in found.items()
            for name, limit in limits.items()
        }
        page = cut_page(quota_rows(found), request)
        return LoadedPage(page.rows, page.total, page.number)

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
        load: Callable[[PageRequest], Awaitable[LoadedPage]],
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

    async def _load_or_say(self, request: PageRequest) -> LoadedPage:
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

    def _say(self, refusal: str) -> LoadedPage:
        """In the place of the table, which would look as if there were nothing."""
        text = refusal or self._note
        if self._line.text != text or self.table.element.visible == bool(refusal):
            self._line.set_text(text)
            self._line.set_visibility(bool(text))
            self.table.element.set_visibility(not refusal)
            self.table.toolbar.set_visibility(not refusal)
        return LoadedPage((), 0)
