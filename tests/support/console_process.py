"""A console in a process of its own, and a real browser that looks at it.

`browser` and `page` are fixtures: import them where they are used.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.broker_process import moldau_command
from support.waiting import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from moldau.testing.running_secured_broker import SecuredBroker

_SERVES = re.compile(r"^console at (https?://\S+)$", re.MULTILINE)
_NAMES = ("chromium", "chromium-browser", "google-chrome")

PATIENCE_MS = PATIENCE_SECONDS * 1000

ACCESS_CONTROL = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
"""Options of a secured broker: the administrator may do everything, others what lists say."""


class ConsoleProcess:
    """`moldau console`; `url` is where it serves."""

    def __init__(self, folder: Path, bootstrap: str, arguments: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._output = folder / "console.out"
        command = moldau_command("console", "--with-parent", "--bootstrap", bootstrap)
        if "--listen" not in arguments:
            command += ["--listen", "127.0.0.1:0"]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.url = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_serving(self) -> ConsoleProcess:
        eventually(
            lambda: _SERVES.search(self.output) or not self.is_alive,
            lambda: f"console at ...; its output:\n{self.output}",
        )
        found = _SERVES.search(self.output)
        assert found is not None, f"the console ended:\n{self.output}"
        self.url = found[1]
        return self

    def memory_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        return 0 if found is None else int(found[1]) * 1024

    def end(self) -> int:
        """As when its parent has ended: the pipe does, and the console with it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(PATIENCE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def running_console(
    folder: Path, bootstrap: str, arguments: Sequence[str] = ()
) -> Iterator[ConsoleProcess]:
    """One that serves; it ended well, and nothing in its output looked like a bug."""
    console = ConsoleProcess(folder, bootstrap, arguments)
    try:
        yield console.wait_until_serving()
    finally:
        status = console.end()
    assert status == 0, console.output
    assert "Traceback" not in console.output, console.output


@contextlib.contextmanager
def running_secured_console(folder: Path, broker: SecuredBroker) -> Iterator[ConsoleProcess]:
    """One that is told the administrator's password, which no session is to use."""
    settings = broker.folder / "client.properties"
    options = broker.client_options("admin")
    settings.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    arguments = ["--command-config", str(settings)]
    with running_console(folder, broker.bootstrap, arguments) as console:
        yield console


def find_chromium() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    """Chromium without a window; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = find_chromium()
    if path is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
            timeout=2 * PATIENCE_MS,  # Playwright's half a minute is not enough on a busy machine
        )
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def looking(
    browser: Browser, *, width: int = 1280, height: int = 860, dark: bool = False
) -> Iterator[Page]:
    """A tab. Errors in it fail the test: of scripts, and requests that were refused."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    try:
        yield page
    finally:
        context.close()
    assert not faults, faults


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with looking(browser) as found:
        yield found


def log_in(page: Page, user: str, password: str) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def wait_until_dialogs_are_closed(page: Page) -> None:
    """A dialog that is closing is still there: its boxes are found beside those of the next."""
    eventually(lambda: page.locator(".q-dialog").count() == 0, "no dialog is open or closing")
