"""What the pages of one console share: the cluster, what is watched of it, and the settings."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.clock import Clock, SystemClock
from moldau.console.data.cluster import Cluster
from moldau.console.data.groups import LagHistories
from moldau.console.data.watch import ConsoleWatch
from moldau.console.settings import ConsoleSettings


@dataclass(slots=True, kw_only=True)
class Console:
    """One for a process; where people log in, one for each session, with that user's clients."""

    settings: ConsoleSettings
    cluster: Cluster
    watch: ConsoleWatch
    lags: LagHistories
    clock: Clock
    user: str | None = None  # None where nobody logs in
    is_over: bool = False  # logged out, or expired: its pages are to be left

    @property
    def may_change(self) -> bool:
        return not self.settings.is_read_only

    async def close(self) -> None:
        self.is_over = True
        await self.watch.stop()
        await self.cluster.close()


def make_console(settings: ConsoleSettings, user: str | None = None) -> Console:
    clock = SystemClock()
    cluster = Cluster(settings)
    return Console(
        settings=settings,
        cluster=cluster,
        watch=ConsoleWatch(cluster, clock),
        lags=LagHistories(clock),
        clock=clock,
        user=user,
    )
