"""Users, quotas, groups of every kind and pipelines in the console, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import moldau
import moldau.testing
from moldau.client.admin.values import ConfigChange, ConfigResource, NewTopic
from moldau.model import TopicPartition
from moldau.quotas import QuotaEntity
from moldau.testing.running_secured_broker import SecuredBroker, secured_broker
from support.console_process import (
    ACCESS_CONTROL,
    ConsoleProcess,
    browser,
    log_in,
    looking,
    running_console,
    running_secured_console,
    wait_until_dialogs_are_closed,
)
from support.waiting import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("nicegui")
pytestmark = pytest.mark.xdist_group("browser")

__all__ = ("browser",)  # a fixture


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Alice may log in, and nothing else."""
    pytest.importorskip("cryptography")
    with secured_broker(ACCESS_CONTROL, folder=tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module")
def secured_console(
    secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with running_secured_console(tmp_path_factory.mktemp("console"), secured) as process:
        yield process


def log_in_to(page: Page, url: str, user: str, password: str) -> None:
    page.goto(url)
    log_in(page, user, password)


def fill_passwords(page: Page, label: str, password: str, again: str) -> None:
    page.get_by_label(label, exact=True).fill(password)
    page.get_by_label("The same again").fill(again)


def test_a_user_is_added_gets_another_password_and_is_removed(
    secured_console: ConsoleProcess, secured: SecuredBroker, browser: Browser
) -> None:
    with looking(browser) as page, looking(browser) as hers:
        log_in_to(page, f"{secured_console.url}/access", "admin", secured.users["admin"])
        page.get_by_role("button", name="Add user").click()
        page.get_by_label("Name", exact=True).fill("carol")
        fill_passwords(page, "Password", "first", "firts")
        page.get_by_role("button", name="Add", exact=True).click()
        page.get_by_text("The passwords are not the same").wait_for()
        fill_passwords(page, "Password", "first", "first")
        page.keyboard.press("Enter")  # in the second box
        page.get_by_role("button", name="carol", exact=True).wait_for()
        wait_until_dialogs_are_closed(page)
        log_in_to(hers, f"{secured_console.url}/topics", "carol", "first")
        hers.get_by_text("carol", exact=True).wait_for()
        hers.get_by_role("button", name="Log out").click()
        hers.wait_for_url("**/login")

        page.get_by_role("button", name="carol", exact=True).click()
        fill_passwords(page, "New password", "second", "second")
        page.get_by_role("button", name="Change password").click()
        page.get_by_text("The password of carol was set").last.wait_for()
        wait_until_dialogs_are_closed(page)
        log_in_to(hers, f"{secured_console.url}/topics", "carol", "second")
        hers.get_by_text("carol", exact=True).wait_for()
        hers.get_by_role("button", name="Log out").click()
        hers.wait_for_url("**/login")

        page.get_by_role("button", name="carol", exact=True).click()
        page.get_by_role("button", name="Remove user").click()
        remove = page.get_by_role("button", name="Remove", exact=True)
        assert remove.is_disabled()
        page.get_by_label("Write carol to go on").fill("carol")
        remove.click()
        page.get_by_text("carol was removed").wait_for()
        eventually(
            lambda: page.get_by_role("button", name="carol", exact=True).count() == 0,
            "she is not in the list",
        )
        log_in_to(hers, f"{secured_console.url}/topics", "carol", "second")
        hers.get_by_role("alert").get_by_text("does not know this user").wait_for()
        assert "second" not in secured_console.output


def test_who_may_not_is_shown_no_users_and_changes_none(
    secured_console: ConsoleProcess, secured: SecuredBroker, browser: Browser
) -> None:
    with looking(browser) as page:
        log_in_to(page, f"{secured_console.url}/access", "alice", secured.users["alice"])
        hidden = page.get_by_text("The cluster does not let you see this")
        eventually(lambda: hidden.count() == 3, "users, lists and quotas say so")
        assert not page.get_by_role("button", name="Add user").is_visible()
        assert not page.get_by_role("button", name="Set quota").is_visible()


@pytest.fixture(scope="module")
def broker() -> Iterator[moldau.testing.RunningBroker]:
    with moldau.testing.broker() as running:
        yield running


@pytest.fixture(scope="module")
def console(
    broker: moldau.testing.RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with running_console(tmp_path_factory.mktemp("plain"), broker.bootstrap) as process:
        yield process


def test_a_quota_is_set_changed_and_removed(
    console: ConsoleProcess, broker: moldau.testing.RunningBroker, browser: Browser
) -> None:
    def limits() -> object:
        with moldau.Admin(broker.bootstrap) as admin:
            return admin.describe_client_quotas(user="dave").get(QuotaEntity(user="dave"))

    with looking(browser, width=390, height=800) as page:  # a phone
        page.goto(f"{console.url}/access")
        page.get_by_role("button", name="Set quota").click()
        page.get_by_role("button", name="Set", exact=True).click()
        page.get_by_text("Say whose quota it is").wait_for()
        page.get_by_label("User").fill("dave")
        page.get_by_label("Limit").fill("12345678")
        page.get_by_role("button", name="Set", exact=True).click()
        row = page.get_by_role("button", name="user 'dave'", exact=True)
        row.wait_for()
        assert limits() == {"producer_byte_rate": 12345678.0}
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        wait_until_dialogs_are_closed(page)

        row.focus()
        page.keyboard.press("Enter")
        assert page.get_by_label("Limit").input_value() == "12345678"
        page.get_by_label("Limit").fill("1000000")
        page.keyboard.press("Enter")
        eventually(lambda: limits() == {"producer_byte_rate": 1000000.0}, "it was changed")
        wait_until_dialogs_are_closed(page)

        row.click()
        page.get_by_role("button", name="Remove quota").click()
        page.get_by_role("button", name="Remove", exact=True).click()
        eventually(lambda: limits() is None, "it was removed")


def test_a_read_only_console_changes_no_quota(
    broker: moldau.testing.RunningBroker, browser: Browser, tmp_path: Path
) -> None:
    with moldau.Admin(broker.bootstrap) as admin:
        admin.alter_client_quotas({QuotaEntity(user="erin"): {"consumer_byte_rate": 1e6}})
    with (
        running_console(tmp_path, broker.bootstrap, ["--read-only"]) as console,
        looking(browser) as page,
    ):
        page.goto(f"{console.url}/access")
        page.get_by_role("button", name="user 'erin'", exact=True).click()
        page.get_by_text("This console is read-only").wait_for()
        assert page.locator(".q-dialog").count() == 0
        assert not page.get_by_role("button", name="Add user").is_visible()
        assert not page.get_by_role("button", name="Set quota").is_visible()


def test_groups_of_every_kind_are_shown_with_their_members(
    console: ConsoleProcess, broker: moldau.testing.RunningBroker, browser: Browser
) -> None:
    bootstrap = broker.bootstrap
    read = TopicPartition("read", 0)
    with moldau.Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name="read", partitions=1)])
        admin.alter_group_offsets("simple-group", {read: 0})
        earliest = ConfigChange(name="share.auto.offset.reset", value="earliest")
        admin.alter_configs({ConfigResource.group("share-group"): [earliest]})
    with moldau.Producer(bootstrap) as producer:
        producer.send("read", b"1")
        producer.flush()
    with (
        moldau.Consumer(
            bootstrap, group_id="classic-group", client_id="mine", auto_offset_reset="earliest"
        ) as classic,
        moldau.Consumer(
            bootstrap,
            group_id="new-group",
            group_protocol="consumer",
            client_id="mine",
            auto_offset_reset="earliest",
        ) as new,
        moldau.Queue(bootstrap, group="share-group", topic="read", client_id="mine") as queue,
        looking(browser) as page,
    ):
        for consumer in (classic, new):
            consumer.subscribe(["read"])
            eventually(partial(consumer.poll, 1.0), "it reads")
        with queue.next(PATIENCE_SECONDS):
            pass
        kinds = {
            "classic-group": "classic",
            "new-group": "consumer",
            "share-group": "share",
            "simple-group": "classic",
        }
        page.goto(f"{console.url}/groups")
        for name, kind in kinds.items():
            row = page.locator("tbody tr", has=page.get_by_role("link", name=name, exact=True))
            row.get_by_text(kind, exact=True).wait_for()
            members = "0" if name == "simple-group" else "1"
            row.get_by_role("cell", name=members, exact=True).first.wait_for()
        for name, kind in kinds.items():
            page.goto(f"{console.url}/group?id={name}")
            if name == "simple-group":
                page.get_by_text("Nobody is in it").wait_for()
                page.get_by_role("link", name="read-0", exact=True).wait_for()
            else:
                page.get_by_text(f"{kind} · Stable").wait_for()
                page.get_by_role("cell", name="mine").first.wait_for()


def test_a_pipeline_is_shown_with_how_far_behind_it_is(
    broker: moldau.testing.RunningBroker, browser: Browser, tmp_path: Path
) -> None:
    pytest.importorskip("pyspark")
    with moldau.Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name="piped", partitions=1)])
    with moldau.Producer(broker.bootstrap) as producer:
        for number in range(3):
            producer.send("piped", b"%d" % number)
        producer.flush()
    file = tmp_path / "piped.toml"
    file.write_text(
        '[sources.piped]\ntopic = "piped"\nstarting_offsets = "earliest"\n'
        f'[sinks.lake]\nparquet = "{tmp_path / "lake"}"\n'
    )
    arguments = ["--pipeline", str(file)]
    with (
        running_console(tmp_path, broker.bootstrap, arguments) as console,
        looking(browser) as page,
    ):
        page.goto(f"{console.url}/pipelines")
        page.get_by_text("not running").wait_for()
        page.get_by_text("3 records behind").wait_for()
