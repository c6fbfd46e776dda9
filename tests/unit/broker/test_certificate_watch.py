"""A broker says in good time that its certificates end."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from moldau.broker.security import CertificateWatch, KeyStore
from moldau.config.listener_options import ListenerOptions
from moldau.config.option import Layers
from moldau.metrics.figures import BrokerFigures
from moldau.security.certificates import issue, make_authority
from moldau.simulation.manual_clock import ManualClock
from moldau.workers import InlineWorkers

AUTHORITY = make_authority("authority")
DAY_SECONDS = 24 * 60 * 60


class Watched:
    """A key store on disk, and a watch over it."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.figures = BrokerFigures()
        self.path = folder / "broker.pem"
        options = ListenerOptions.of_listener(
            Layers(static={"ssl.keystore.location": str(self.path)}), "OUTSIDE"
        )
        self.watch = CertificateWatch(
            lambda: [KeyStore("the listener OUTSIDE", options)],
            clock=self.clock,
            workers=InlineWorkers(),
            figures=self.figures,
        )

    def renew(self, days: int) -> None:
        now = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)
        made = issue(AUTHORITY, "broker", days=days, now=now)
        self.path.write_text(made.certificate + made.key)

    async def look_after(self, seconds: float) -> None:
        self.clock.jump(seconds)
        await self.watch.look()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_month_before_its_end_it_is_told_once_a_day(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        watched.renew(days=32)
        await watched.watch.look()
        assert not caplog.messages
        for _ in range(30):  # two and a half days
            await watched.look_after(DAY_SECONDS / 12)
        assert caplog.messages == [
            "the certificate of the listener OUTSIDE ends in 29 days; renew it"
        ]
        await watched.look_after(40 * DAY_SECONDS)
        assert caplog.messages[-1].startswith("the certificate of the listener OUTSIDE has ended")
        assert caplog.records[-1].levelno == logging.ERROR

    asyncio.run(run())


def test_a_new_one_is_seen_within_a_minute(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        watched.renew(days=1)
        await watched.watch.look()
        assert len(caplog.messages) == 1
        first = watched.figures.certificates_end_ms
        watched.renew(days=100)
        await watched.look_after(5)
        assert watched.figures.certificates_end_ms == first  # files are not read all the time
        await watched.look_after(60)
        end_ms = watched.figures.certificates_end_ms
        assert first is not None
        assert end_ms is not None
        assert end_ms > first + 98 * DAY_SECONDS * 1000
        await watched.look_after(DAY_SECONDS)
        assert len(caplog.messages) == 1

    asyncio.run(run())


def test_what_cannot_be_read_is_told_by_others(
    watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.path.write_text("-----BEGIN CERTIFICATE-----\nMIIx\n-----END CERTIFICATE-----")
    asyncio.run(watched.watch.look())
    assert watched.figures.certificates_end_ms is None
    assert not caplog.messages
