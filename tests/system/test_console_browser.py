"""The console in a real browser, against real brokers."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import moldau
from moldau.client.admin.values import NewTopic
from moldau.errors import ProducerFencedError
from support.broker_process import BrokerProcess, broker_process, running_broker
from support.console_process import (
    PATIENCE_MS,
    ConsoleProcess,
    browser,
    looking,
    page,
    running_console,
)
from support.supervised_brokers import supervised_brokers
from support.waiting import eventually

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ("browser", "page")  # fixtures

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_broker() as process:
        yield process


@pytest.fixture(scope="module")
def console(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleProcess]:
    with running_console(tmp_path_factory.mktemp("console"), broker.bootstrap) as process:
        yield process


def make_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    topic = NewTopic(
        name=name,
        partitions=partitions,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    # A request that is not answered for too long is sent again: then the topic is there already.
    with moldau.Admin(
        bootstrap, request_timeout_ms=120_000, default_api_timeout_ms=120_000
    ) as admin:
        answer = admin.create_topics([topic])[name]
    assert not isinstance(answer, Exception), answer


def produce(bootstrap: str, topic: str, values: list[str], key: str | None = None) -> None:
    with moldau.Producer(bootstrap) as producer:
        for value in values:
            producer.send(topic, value.encode(), None if key is None else key.encode())
        producer.flush()


def test_a_topic_is_created_written_to_and_read(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    page.goto(f"{console.url}/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("by-hand")
    page.get_by_label("Partitions").fill("3")
    page.get_by_label("Settings").fill("retention.ms=3600000")
    page.get_by_role("button", name="Create", exact=True).click()
    page.wait_for_url("**/topics/by-hand")
    page.get_by_text("The topic is empty").wait_for()

    page.get_by_role("link", name="Produce").click()
    page.get_by_label("Key", exact=True).fill("k-1")
    page.get_by_label("Value", exact=True).fill('{"river": "Moldau", "km": 430}')
    page.get_by_label("Headers").fill("source: browser")
    page.get_by_role("button", name="Send").click()
    page.get_by_text(re.compile(r"Written to partition \d at offset 0")).wait_for()

    page.get_by_role("link", name="Messages").click()
    page.get_by_text('{"river": "Moldau", "km": 430}').wait_for()
    page.get_by_role("button", name="0", exact=True).click()
    page.locator(".m-pre", has_text='"river": "Moldau",').wait_for()
    page.get_by_text("browser", exact=True).wait_for()

    with moldau.Admin(broker.bootstrap) as admin:
        assert len(admin.list_topics()["by-hand"].partitions) == 3


def test_the_chart_moves_when_records_come(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    make_topic(broker.bootstrap, "moving")
    page.goto(console.url)
    figure = page.locator("a.m-figure", has_text="Records/s").locator(".m-figure-number")
    figure.wait_for()

    def moves() -> bool:  # both say what comes at the moment, so records come until they have
        produce(broker.bootstrap, "moving", ["x"] * 200)
        is_listed = page.locator("table").get_by_text("moving").count() > 0
        return is_listed and figure.inner_text() not in ("-", "0")

    eventually(moves, "the figure and the table say that records come")
    points = """() => {
        const canvas = document.querySelector(".m-chart canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] > 200 && data[at + 2] > 150 && data[at] < 60) found++;
        return found;
    }"""
    eventually(lambda: page.evaluate(points) > 20, "the line is drawn")


def test_a_groups_lag_is_followed_and_reset(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    make_topic(broker.bootstrap, "followed")
    produce(broker.bootstrap, "followed", [str(n) for n in range(10)])
    with moldau.Consumer(
        broker.bootstrap, group="fol/lowers?", topics="followed", auto_offset_reset="earliest"
    ) as consumer:
        read = 0
        while read < 10:
            read += len(consumer.poll(5.0))
        consumer.commit()
        page.goto(f"{console.url}/groups")
        page.get_by_role("link", name="fol/lowers?").click()
        lag = page.locator("section", has_text="Lag in records").locator(".m-figure-number")
        eventually(lambda: lag.inner_text() == "0", "nothing is left to read")
        page.get_by_text("followed 0", exact=True).wait_for()  # its member reads it
        produce(broker.bootstrap, "followed", ["more"] * 5)
        eventually(lambda: lag.inner_text() == "5", "the lag has grown")
    page.get_by_role("button", name="Reset").click()
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("-10").wait_for()
    page.get_by_role("button", name="Reset", exact=True).last.click()
    eventually(lambda: lag.inner_text() == "15", "the group begins again")


def test_records_are_found_among_many(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    make_topic(broker.bootstrap, "haystack", partitions=4)
    with moldau.Producer(broker.bootstrap, compression_type="lz4") as producer:
        for number in range(20_000):
            producer.send("haystack", b"straw %d" % number, b"%d" % number)
        producer.send("haystack", b"a Needle", b"here")
        for number in range(20_000):
            producer.send("haystack", b"straw %d" % number, b"%d" % number)
        producer.flush()
    page.goto(f"{console.url}/topics/haystack")
    page.get_by_text("50 records").wait_for()
    page.get_by_label("Search").fill("needle")
    page.get_by_label("Search").press("Enter")
    page.get_by_text("a Needle").wait_for()
    page.get_by_text("1 found in 40,001 of 40,001 offsets, which is all").wait_for()
    page.wait_for_url("**/topics/haystack?search=needle")  # a link to the same

    page.get_by_role("button", name="Where and how to look").click()
    page.get_by_text("upper and lower case as typed").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Read").click()
    page.get_by_text("0 found in 40,001 of 40,001 offsets, which is all").wait_for()


def test_pages_of_records_go_back_and_a_time_is_a_place_to_begin(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    make_topic(broker.bootstrap, "paged")
    produce(broker.bootstrap, "paged", [f"value {n}" for n in range(120)])
    page.goto(f"{console.url}/topics/paged")
    page.get_by_text("value 119", exact=True).wait_for()
    page.get_by_role("button", name="Older").click()
    page.get_by_text("value 69", exact=True).wait_for()
    page.get_by_role("button", name="Older").click()
    page.get_by_text("20 records").wait_for()
    page.get_by_role("button", name="Older").wait_for(state="hidden")

    page.get_by_label("Where to begin").click()
    page.get_by_role("option", name="From time").click()
    page.get_by_placeholder("10m, 2h, or").fill("1h")
    page.get_by_role("button", name="Read").click()
    page.get_by_text("value 0", exact=True).wait_for()


def test_a_live_tail_shows_what_comes(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    make_topic(broker.bootstrap, "live", partitions=2)
    page.goto(f"{console.url}/topics/live")
    page.get_by_text("The topic is empty").wait_for()
    page.get_by_label("Where to begin").click()
    page.get_by_role("option", name="Live").click()
    page.get_by_text("Waiting for records").wait_for()
    fresh = 0

    def appears() -> bool:  # a tail begins at the end, whenever it finds that
        nonlocal fresh
        fresh += 1
        produce(broker.bootstrap, "live", [f"fresh {fresh}"])
        return page.get_by_text(re.compile(r"^fresh \d+$")).count() > 0

    eventually(appears, "what was just written is there")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Read").wait_for()


EVIL = "</title><script>window.hurt = 1</script>{{ window.hurt = 1 }}<img src=x onerror=hurt=1>"


def test_nothing_that_others_wrote_is_run(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    """Keys, values, headers, groups and transactional ids may be anything. And a link to a record
    opens it."""
    make_topic(broker.bootstrap, "evil")
    evil = EVIL.encode()
    producer = moldau.Producer(broker.bootstrap, transactional_id=EVIL)
    with producer, producer.transaction():
        producer.send("evil", evil, evil, headers=[(EVIL, evil)])
    with moldau.Consumer(
        broker.bootstrap, group=EVIL, topics="evil", auto_offset_reset="earliest"
    ) as consumer:
        eventually(lambda: consumer.poll(1.0), "the record is read")
        consumer.commit()
    page.goto(f"{console.url}/topics/evil?partition=0&offset=0&open=1")
    page.locator(".m-pre", has_text="window.hurt").first.wait_for()
    page.get_by_text("Headers (1)").wait_for()
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
        page.get_by_text("as JSON lines").click()
    assert download.value.suggested_filename == "evil.jsonl"
    (line,) = Path(download.value.path()).read_text().splitlines()
    assert json.loads(line)["value"] == EVIL
    for path in ("/groups", f"/group?id={quote(EVIL)}", "/transactions"):
        page.goto(console.url + path)
        page.get_by_text(EVIL).first.wait_for()
        assert page.evaluate("window.hurt") is None
    assert not page.evaluate("document.querySelector('img[src=x]')")


def test_an_open_transaction_is_aborted(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    make_topic(broker.bootstrap, "unpaid")
    with moldau.Producer(broker.bootstrap, transactional_id="till-1") as producer:
        producer.begin_transaction()
        producer.send("unpaid", b"42")
        producer.flush()
        page.goto(f"{console.url}/transactions")
        page.get_by_role("button", name="till-1").click()
        page.get_by_text("unpaid 0").wait_for()
        page.get_by_role("button", name="Abort").click()
        page.get_by_label("Write till-1 to go on").fill("till-1")
        page.get_by_role("button", name="Abort").last.click()
        page.get_by_text("The transaction of till-1 was aborted").wait_for()
        with pytest.raises(ProducerFencedError):
            producer.commit_transaction()
    page.goto(f"{console.url}/topics/unpaid")
    page.get_by_text("1 record", exact=True).wait_for()  # it is there, for who reads uncommitted
    page.get_by_text("committed only").click()
    page.get_by_role("button", name="Read").click()
    page.get_by_text("0 records").wait_for()


def test_a_setting_is_changed_after_it_was_confirmed(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    make_topic(broker.bootstrap, "settled")
    page.goto(f"{console.url}/topics/settled/settings")
    page.get_by_label("Search").fill("retention.ms")
    page.get_by_role("button", name="retention.ms", exact=True).click()
    page.get_by_label("Value", exact=True).fill("7200000")
    page.get_by_role("button", name="Set", exact=True).click()
    page.get_by_text("604800000 → 7200000").wait_for()
    page.get_by_role("button", name="Change").click()
    page.get_by_text("dynamic topic").wait_for()
    page.get_by_role("cell", name="7200000").wait_for()


def test_a_topic_is_deleted_by_who_writes_its_name(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    make_topic(broker.bootstrap, "short-lived")
    page.goto(f"{console.url}/topics/short-lived")
    page.get_by_role("button", name="Delete topic").click()
    delete = page.get_by_role("button", name="Delete", exact=True)
    assert delete.is_disabled()
    page.get_by_label("Write short-lived to go on").fill("short-lived")
    delete.click()
    page.wait_for_url("**/topics")
    with moldau.Admin(broker.bootstrap) as admin:
        assert "short-lived" not in admin.list_topics()


def test_keys_and_the_theme(console: ConsoleProcess, page: Page) -> None:
    page.goto(console.url)
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    page.get_by_role("heading", name="Topics").wait_for()
    page.keyboard.press("/")
    eventually(
        lambda: page.evaluate("document.activeElement.tagName") == "INPUT", "the search has focus"
    )
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Light or dark").click()
    page.locator("body.body--dark").wait_for()
    page.goto(f"{console.url}/brokers")
    page.locator("body.body--dark").wait_for()  # it is remembered


def test_a_phone_shows_every_page_without_scrolling_sideways(
    console: ConsoleProcess, broker: BrokerProcess, browser: Browser
) -> None:
    make_topic(broker.bootstrap, "pocket", partitions=12)
    produce(broker.bootstrap, "pocket", ["x" * 500] * 3, key="a-rather-long-key-of-a-record" * 3)
    paths = ("/", "/brokers", "/brokers/1", "/topics", "/groups", "/transactions", "/pipelines")
    tabs = ("", "/partitions", "/activity", "/settings", "/produce")
    of_topic = ["/access", *(f"/topics/pocket{tab}" for tab in tabs)]
    with looking(browser, width=390, height=800) as page:
        for path in (*paths, *of_topic):
            page.goto(f"{console.url}{path}")
            page.locator(".m-page").wait_for()
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= 390, f"{path} is {width} wide"
        page.get_by_role("button", name="Navigation").click()
        page.get_by_role("link", name="Groups").click()
        page.wait_for_url("**/groups")


def test_two_thousand_partitions_are_shown_page_by_page(
    console: ConsoleProcess, broker: BrokerProcess, page: Page
) -> None:
    make_topic(broker.bootstrap, "wide", partitions=2000)
    page.goto(f"{console.url}/topics")
    page.get_by_label("Search").fill("wide")
    page.get_by_role("link", name="wide").click()
    page.get_by_text("The topic is empty").wait_for()
    page.get_by_role("link", name="Partitions").click()
    page.get_by_text("1-25 of 2000").wait_for(timeout=180_000)
    assert page.locator("tbody tr").count() == 25
    page.locator("button", has_text="last_page").click()
    page.get_by_role("cell", name="1999").wait_for()
    page.goto(console.url)
    figure = page.locator("a.m-figure", has_text="Partitions")  # with those of internal topics
    eventually(
        lambda: re.search(r"\b2,\d{3}\b", figure.inner_text()) is not None,
        lambda: f"the overview has counted them: {figure.inner_text()!r}",
    )


def test_a_read_only_console_offers_no_changes(
    broker: BrokerProcess, page: Page, tmp_path: Path
) -> None:
    make_topic(broker.bootstrap, "looked-at")
    with running_console(tmp_path, broker.bootstrap, ["--read-only"]) as console:
        page.goto(f"{console.url}/topics")
        page.get_by_role("link", name="looked-at").wait_for()
        assert page.get_by_role("button", name="Create topic").count() == 0
        page.goto(f"{console.url}/topics/looked-at")
        page.get_by_text("The topic is empty").wait_for()
        assert page.get_by_role("button", name="Delete topic").count() == 0
        assert page.get_by_role("link", name="Produce").count() == 0
        page.goto(f"{console.url}/topics/looked-at/produce")
        page.get_by_role("button", name="Send").click()  # who knows the address is refused, too
        page.get_by_text("this console is read-only").wait_for()


def test_a_cluster_that_goes_away_is_said_to_be_and_comes_back_by_itself(
    tmp_path: Path, page: Page
) -> None:
    with broker_process(tmp_path / "broker") as broker:
        broker.start()
        make_topic(broker.bootstrap, "lasting")
        with running_console(tmp_path, broker.bootstrap) as console:
            page.goto(f"{console.url}/topics")
            page.get_by_role("link", name="lasting").wait_for()
            broker.kill()
            page.get_by_text("The cluster is away").wait_for()
            assert page.get_by_role("link", name="lasting").is_visible()  # what was known stays
            broker.start()
            page.get_by_text("The cluster is away").wait_for(state="hidden")
            page.get_by_text("1 broker", exact=True).wait_for()


def test_a_console_may_be_opened_before_its_cluster(tmp_path: Path, page: Page) -> None:
    with (
        broker_process(tmp_path / "broker") as broker,
        running_console(tmp_path, broker.bootstrap) as console,
    ):
        page.goto(console.url)
        page.get_by_text("The cluster is away").wait_for()
        broker.start()
        page.get_by_text("1 broker", exact=True).wait_for()


def test_the_in_sync_set_shrinks_when_a_broker_is_gone(tmp_path: Path, page: Page) -> None:
    with supervised_brokers(tmp_path / "brokers") as brokers:
        brokers.start()
        make_topic(brokers.bootstrap, "guarded")
        with running_console(tmp_path, brokers.bootstrap) as console:
            page.goto(f"{console.url}/topics/guarded/partitions")
            page.get_by_text("in sync", exact=True).wait_for()
            # Paused, since a supervisor starts one again that has ended.
            brokers.signal_broker(3, signal.SIGSTOP)
            page.get_by_text("under-replicated", exact=True).wait_for(timeout=PATIENCE_MS * 2)
            page.get_by_role("cell", name=re.compile(r"^(1, 2|2, 1)$")).wait_for()
            brokers.signal_broker(3, signal.SIGCONT)
            page.get_by_text("in sync", exact=True).wait_for(timeout=PATIENCE_MS * 2)
