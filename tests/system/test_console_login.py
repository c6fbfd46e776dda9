"""Who logs in to the console, and what that user may do: a secured broker, a real browser."""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau
from moldau.client.admin.values import NewTopic
from moldau.model import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from moldau.processes import read_command_line
from moldau.testing.running_secured_broker import SecuredBroker, secured_broker
from support.broker_process import broker_process
from support.console_process import (
    ACCESS_CONTROL,
    ConsoleProcess,
    browser,
    log_in,
    looking,
    page,
    running_secured_console,
)
from support.waiting import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytest.importorskip("nicegui")
pytest.importorskip("cryptography")
pytestmark = pytest.mark.xdist_group("browser")

__all__ = ("browser", "page")  # fixtures


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Alice may read `hers`, and see nothing else."""
    with secured_broker(ACCESS_CONTROL, folder=tmp_path_factory.mktemp("secured")) as running:
        with moldau.Admin(running.bootstrap, **running.client_options("admin")) as admin:
            admin.create_topics([NewTopic(name="hers"), NewTopic(name="hidden")])
            hers = ResourcePattern(AclResourceType.TOPIC, "hers")
            operations = (AclOperation.READ, AclOperation.DESCRIBE)
            admin.create_acls(
                [
                    AclBinding(hers, AclEntry("User:alice", AclPermission.ALLOW, operation))
                    for operation in operations
                ]
            )
        yield running


@pytest.fixture(scope="module")
def console(
    broker: SecuredBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with running_secured_console(tmp_path_factory.mktemp("console"), broker) as process:
        yield process


def post(url: str, **headers: str) -> int:
    """The status of a login with a wrong password."""
    data = urllib.parse.urlencode({"user": "mallory", "password": "guess"}).encode()
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_user_sees_what_the_cluster_lets_that_user_see(
    console: ConsoleProcess, broker: SecuredBroker, page: Page
) -> None:
    page.goto(f"{console.url}/topics")
    page.wait_for_url("**/login?next=%2Ftopics")
    log_in(page, "alice", "wrong")
    page.get_by_role("alert").get_by_text("does not know this user").wait_for()
    log_in(page, "alice", broker.users["alice"])
    page.wait_for_url("**/topics")  # where she wanted to go
    page.get_by_role("link", name="hers", exact=True).wait_for()
    assert page.get_by_role("link", name="hidden").count() == 0
    page.get_by_text("alice", exact=True).wait_for()

    page.goto(f"{console.url}/topics/hers")
    page.get_by_text("The topic is empty").wait_for()
    page.get_by_role("button", name="Delete topic").click()
    page.get_by_label("Write hers to go on").fill("hers")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.locator(".q-notification", has_text="hers").wait_for()  # says that she may not
    with moldau.Admin(broker.bootstrap, **broker.client_options("admin")) as admin:
        assert "hers" in admin.list_topics()


def test_two_users_at_the_same_time_and_logging_out(
    console: ConsoleProcess, broker: SecuredBroker, browser: Browser
) -> None:
    with looking(browser) as hers, looking(browser) as his:
        for page, user in ((hers, "alice"), (his, "admin")):
            page.goto(f"{console.url}/topics")
            log_in(page, user, broker.users[user])
            page.get_by_role("link", name="hers", exact=True).wait_for()
        his.get_by_role("link", name="hidden").wait_for()
        other_tab = his.context.new_page()
        other_tab.goto(f"{console.url}/groups")
        other_tab.get_by_role("heading", name="Groups").wait_for()
        cookies = {one["name"]: one for one in his.context.cookies()}
        assert cookies["moldau-session"]["httpOnly"]
        assert cookies["moldau-session"]["sameSite"] == "Lax"

        def answer_late(route: Route) -> None:
            answer = route.fetch(max_redirects=0)  # and the session is over
            other_tab.wait_for_url("**/login?next=%2Fgroups")  # by itself
            route.fulfill(response=answer)

        his.route("**/logout", answer_late)
        his.get_by_role("button", name="Log out").click()
        his.wait_for_url("**/login")  # and not back to where that user was
        his.context.add_cookies([cookies["moldau-session"]])  # type: ignore[list-item]
        his.goto(f"{console.url}/topics")
        his.wait_for_url("**/login**")  # what was logged out stays so
        hers.reload()
        hers.get_by_role("link", name="hers", exact=True).wait_for()


def test_nothing_is_told_before_a_login(console: ConsoleProcess) -> None:
    opener = urllib.request.build_opener(urllib.request.HTTPHandler)
    for path in ("/", "/topics/hers", "/access", "/group?id=x"):
        with opener.open(console.url + path, timeout=PATIENCE_SECONDS) as answer:
            text = answer.read().decode()
            assert urllib.parse.urlsplit(answer.url).path == "/login"
            assert "hers" not in text.replace("/topics/hers", "").replace("%2Ftopics%2Fhers", "")
    assert post(f"{console.url}/login", Origin="http://evil.example") == 403


def test_guessing_is_slowed_down(console: ConsoleProcess) -> None:
    assert [post(f"{console.url}/login") for _ in range(5)] == [401] * 5
    # The longer each takes the sooner the next is allowed, but the time to wait doubles.
    eventually(lambda: post(f"{console.url}/login") == 429, "an attempt that comes too early")


def test_no_secret_is_shown(console: ConsoleProcess, broker: SecuredBroker) -> None:
    assert "--command-config" in read_command_line(console.pid)
    told = " ".join(read_command_line(console.pid)) + console.output
    for password in broker.users.values():
        assert password not in told


def test_beside_a_secured_broker_people_log_in(tmp_path: Path, page: Page) -> None:
    """`moldau start --console` hands on how to connect, and nobody's password."""
    from moldau.testing.running_secured_broker import secured_settings, write_certificates

    write_certificates(tmp_path)
    users = {"admin": "admin-secret"}
    settings = secured_settings(tmp_path, users)
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    arguments = ("--config", str(config), "--console", "127.0.0.1:0")
    with broker_process(tmp_path, arguments=arguments) as broker:
        broker.start()
        found = eventually(
            lambda: re.search(r"console at (http://\S+)", broker.output), "the console is there"
        )
        page.goto(found[1])
        log_in(page, "admin", "admin-secret")
        page.get_by_text("1 broker", exact=True).wait_for()
        assert broker.stop() == 0
        assert "admin-secret" not in broker.output
