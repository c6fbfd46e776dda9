"""What the pages of one console share: the cluster, what is watched of it, and the settings."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.clock import Clock, SystemClock
from moldau.console.data.cluster import Cluster
from moldau.console.data.groups import LagHistories
from moldau.console.data.watch import ConsoleWatch
from moldau.console.settings import ConsoleSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """One for a process; nothing in it belongs to a session."""

    settings: ConsoleSettings
    cluster: Cluster
    watch: ConsoleWatch
    lags: LagHistories
    clock: Clock

    @property
    def may_change(self) -> bool:
        return not self.settings.is_read_only


def make_console(settings: ConsoleSettings) -> Console:
    clock = SystemClock()
    cluster = Cluster(settings)
    return Console(
        settings=settings,
        cluster=cluster,
        watch=ConsoleWatch(cluster, clock),
        lags=LagHistories(clock),
        clock=clock,
    )
