"""What is around every page: navigation, the state of the cluster, keys, light and dark.

A page is made in `async with`, and says what it repeats with `every`. What fails on the way stands
in a banner; a cluster that is away is said to be, and the page goes on by itself when it is back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import quote

from nicegui import ui
from nicegui.events import KeyEventArguments

from moldau import __version__
from moldau.console.console import Console
from moldau.console.data.cluster import EXPECTED, failure_text
from moldau.console.guards import LOGOUT_PATH, SESSION_PATH
from moldau.ops.formatting import duration_text

NAVIGATION = (
    ("o", "Overview", "/", "dashboard"),
    ("b", "Brokers", "/brokers", "dns"),
    ("t", "Topics", "/topics", "topic"),
    ("g", "Groups", "/groups", "groups"),
    ("x", "Transactions", "/transactions", "swap_horiz"),
    ("p", "Pipelines", "/pipelines", "account_tree"),
    ("a", "Access", "/access", "lock"),
)
_KEYS = (
    *((key, label) for key, label, _, _ in NAVIGATION),
    ("/", "Search on this page"),
    ("d", "Light or dark"),
    ("?", "These keys"),
)
_FIRST_ANSWER_SECONDS = 1.0
_THEME_COOKIE = "moldau-theme"
_SEARCH = ".m-search input"
_TOGGLE_NAVIGATION = "() => document.body.classList.toggle('m-nav-open')"
_LOGGING_OUT = "moldauIsLoggingOut"
_TO_LOGIN = f"if (!window.{_LOGGING_OUT}) location.reload()"
"""Leads to the login, as the session is over. Not where a person has just logged out: the tab is on
its way there, and to load it again would end that on the way."""

_LOG_OUT = f"""() => {{
    window.{_LOGGING_OUT} = true;
    setTimeout(() => {{ window.{_LOGGING_OUT} = false }}, 60000);  // still here: it has failed
}}"""
_WATCH_SESSION = f"""setInterval(async () => {{
    const answer = await fetch("{SESSION_PATH}").catch(() => null);
    if (answer?.status === 401) {_TO_LOGIN};
}}, 4000)"""
"""A session may end while a tab has no socket, which it gets only with a session."""

Work = Callable[[], Awaitable[None]]


class Frame:
    """The surroundings of one page in one browser tab."""

    def __init__(self, console: Console, active: str) -> None:
        self.console = console
        self._active = active
        self._problem = ""
        theme = ui.context.client.request.cookies.get(_THEME_COOKIE)
        self._dark = ui.dark_mode({"dark": True, "light": False}.get(theme or ""))
        ui.colors(
            primary="#0e7490",
            secondary="#475569",
            accent="#7c3aed",
            positive="#15803d",
            negative="#dc2626",
            warning="#d97706",
            info="#0369a1",
        )
        ui.add_head_html('<link rel="stylesheet" href="/style/console.css">')
        if console.user is not None:
            ui.add_head_html(f"<script>{_WATCH_SESSION}</script>")
        self._build_header()
        self._build_navigation()
        self._keys = self._build_help()
        ui.keyboard(on_key=self._on_key)
        self._banner = ui.element("div").classes("m-banner").props('role="alert"')
        with self._banner:
            ui.icon("cloud_off")
            self._banner_text = ui.label()
        self._banner.set_visibility(False)
        self.body = ui.element("div").classes("m-page")
        self._tick()
        ui.timer(1.0, self._tick)

    # What pages use

    def every(self, seconds: float, work: Work) -> None:
        """When the browser has the page, and again so many seconds after each time: nobody waits
        for a page because a cluster is slow."""

        async def guarded() -> None:
            try:
                await work()
            except EXPECTED as error:
                self._problem = failure_text(error)
            else:
                self._problem = ""
            self._tick()

        ui.timer(seconds, guarded)

    async def attempt(self, work: Awaitable[object], done: str = "") -> bool:
        """Do what a person asked for, and say how it went."""
        try:
            await work
        except EXPECTED as error:
            ui.notify(failure_text(error), type="negative", multi_line=True, close_button="OK")
            return False
        if done:
            ui.notify(done, type="positive")
        return True

    # Its parts

    def _build_header(self) -> None:
        with ui.header().classes("m-header"):
            menu = ui.button(icon="menu").on("click", js_handler=_TOGGLE_NAVIGATION)
            menu.props('flat round dense aria-label="Navigation"').classes("m-menu")
            with ui.link(target="/").classes("m-brand"):
                ui.icon("water")
                ui.label("Moldau")
            ui.space()
            if not self.console.may_change:
                ui.label("read-only").classes("m-tag")
            if self.console.user is not None:
                self._build_user(self.console.user)
            self._state = ui.label().classes("m-state")
            ui.button(icon="contrast", on_click=self._switch_theme).props(
                'flat round dense aria-label="Light or dark"'
            )
            ui.button(icon="keyboard", on_click=lambda: self._keys.open()).props(
                'flat round dense aria-label="Keys"'
            ).classes("m-wide")

    def _build_user(self, user: str) -> None:
        """A form of its own: it works, and ends the session, whatever became of the socket."""
        form = ui.element("form").props(f'method=post action="{LOGOUT_PATH}"').classes("m-user")
        with form.on("submit", js_handler=_LOG_OUT):
            ui.label(user).classes("m-tag m-wide").props("title=logged-in")
            ui.button(icon="logout").props(
                'flat round dense type=submit aria-label="Log out" title="Log out"'
            )

    def _build_navigation(self) -> None:
        with ui.element("nav").classes("m-nav"):
            for key, label, path, icon in NAVIGATION:
                with ui.link(target=path).classes("m-nav-link") as link:
                    ui.icon(icon)
                    ui.label(label)
                    ui.label(key).classes("m-key m-wide")
                if path == self._active:
                    link.classes("m-nav-active").props('aria-current="page"')
            ui.space()
            ui.label(self.console.settings.bootstrap.replace(",", ", ")).classes("m-faint m-break")
            ui.label(f"Moldau {__version__}").classes("m-faint")

    def _build_help(self) -> ui.dialog:
        with ui.dialog() as dialog, ui.card().classes("m-dialog"):
            ui.label("Keys").classes("m-title")
            with ui.element("div").classes("m-keys"):
                for key, label in _KEYS:
                    ui.label(key).classes("m-key")
                    ui.label(label)
        return dialog

    async def _on_key(self, event: KeyEventArguments) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.meta:
            return
        key = event.key.name
        if key == "?":
            self._keys.open()
        elif key == "d":
            await self._switch_theme()
        elif key == "/":
            ui.run_javascript(f"document.querySelector('{_SEARCH}')?.focus()")
        else:
            for known, _, path, _ in NAVIGATION:
                if key == known:
                    ui.navigate.to(path)

    async def _switch_theme(self) -> None:
        """Kept by the browser: it lasts longer than a session."""
        is_dark = self._dark.value
        if is_dark is None:
            is_dark = await ui.run_javascript("Quasar.Dark.isActive")
        self._dark.value = not is_dark
        word = "light" if is_dark else "dark"
        ui.run_javascript(
            f"document.cookie = '{_THEME_COOKIE}={word};path=/;max-age=31536000;samesite=lax'"
        )

    def _tick(self) -> None:
        if self.console.is_over:
            ui.run_javascript(_TO_LOGIN)
            return
        watch = self.console.watch
        watch.look()
        trouble, view = watch.trouble, watch.view
        if trouble is not None:
            since = duration_text((self.console.clock.now_ms() - trouble.since_ms) // 1000)
            self._say(f"The cluster is away for {since}: {trouble.message}. Trying again.")
            self._set_state("away", "m-bad")
        elif view is None:
            self._set_state("connecting", "m-unknown")
        else:
            self._say(self._problem)
            count = len(view.cluster.brokers)
            self._set_state(f"{count} broker{'' if count == 1 else 's'}", "m-good")

    def _say(self, text: str) -> None:
        if self._banner_text.text != text:
            self._banner_text.set_text(text)
        if self._banner.visible != bool(text):
            self._banner.set_visibility(bool(text))

    def _set_state(self, text: str, look: str) -> None:
        if self._state.text != text:
            self._state.set_text(text)
            self._state.classes(replace=f"m-state {look}")


@asynccontextmanager
async def page_frame(title: str, active: str) -> AsyncIterator[Frame]:
    """A page, with the first answer of the cluster there if it comes soon."""
    console: Console = ui.context.client.request.state.console  # handed in by a guard
    ui.page_title(f"{title} · Moldau")
    await console.watch.wait_until_answered(_FIRST_ANSWER_SECONDS)
    frame = Frame(console, active)
    with frame.body:
        yield frame


def heading(text: str, subtitle: str = "") -> ui.label:
    """The title of a page; gives back the line beneath it, which may change."""
    with ui.element("div").classes("m-heading"):
        ui.label(text).classes("m-h1 m-break").props("role=heading aria-level=1")
        return ui.label(subtitle).classes("m-faint")


def topic_path(name: str, tab: str = "") -> str:
    return f"/topics/{quote(name, safe='')}" + (f"/{tab}" if tab else "")


def group_path(group_id: str) -> str:
    """Names of groups may have anything in them, slashes too."""
    return f"/group?id={quote(group_id, safe='')}"
