"""Where the brokers of `moldau start --brokers N` are: their ids, addresses and folders. A rule.

The first broker is the one that `moldau start` alone would run: its folders are those of
`log.dirs`, its listeners those of `listeners`. The others count on from it, in ids and in ports,
and have the folder `brokers/ID` under each of the first one's (a name that no partition has). So a
broker that was alone becomes the first of several, and is alone again when nothing is left on the
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from moldau.cluster import znodes
from moldau.config.broker_options import BrokerOptions
from moldau.config.declarations.network import split_address
from moldau.config.listeners import Listener
from moldau.coordination.embedded import EmbeddedStore
from moldau.errors import ConfigurationError, MoldauError, StartupError

OTHERS_FOLDER: Final = "brokers"
PID_FILE: Final = "broker.pid"
"""In the first folder of each broker, for those who look from outside."""

MAX_AUTOMATIC: Final = 8
_REPLICAS: Final = 3
_HIGHEST_PORT: Final = 65_535


class BrokerPlace(NamedTuple):
    """One broker: what distinguishes it from the others."""

    broker_id: int
    folders: Sequence[str]
    listeners: Sequence[Listener]
    told_listeners: Sequence[Listener]
    metrics_listener: str | None = None

    def settings(self) -> dict[str, str]:
        """As a broker is told of it."""
        own = {
            "broker.id": str(self.broker_id),
            "log.dirs": ",".join(self.folders),
            "listeners": ",".join(map(str, self.listeners)),
        }
        if self.told_listeners:
            own["advertised.listeners"] = ",".join(map(str, self.told_listeners))
        if self.metrics_listener is not None:
            own["metrics.listener"] = self.metrics_listener
        return own


def plan_places(options: BrokerOptions, count: int, first_id: int) -> list[BrokerPlace]:
    """For so many brokers; raises `ConfigurationError` when there are not enough ports."""
    return [
        BrokerPlace(
            broker_id=first_id + number,
            folders=[_folder_of(first, first_id, number) for first in options.log_dirs],
            listeners=_count_on(options.open_listeners, number),
            told_listeners=_count_on(options.told_listeners, number),
            metrics_listener=None
            if options.metrics_listener is None
            else count_metrics_on(options.metrics_listener, number),
        )
        for number in range(count)
    ]


def _folder_of(first_folder: str, first_id: int, number: int) -> str:
    if number == 0:
        return first_folder
    return str(Path(first_folder) / OTHERS_FOLDER / str(first_id + number))


def _count_on(listeners: Iterable[Listener], number: int) -> list[Listener]:
    """Port 0 stays what it is: any that is free."""
    moved = [
        listener.at(listener.host, listener.port + number if listener.port else 0)
        for listener in listeners
    ]
    for listener in moved:
        if listener.port > _HIGHEST_PORT:
            raise ConfigurationError(
                f"there is no port {listener.port} for the {listener.name} listener of broker "
                f"number {number + 1}: begin with a lower port"
            )
    return moved


def count_metrics_on(address: str, number: int) -> str:
    """The address of the metrics of another broker; port 0 stays what it is."""
    host, port = split_address(address)
    moved = port + number if port else 0
    if moved > _HIGHEST_PORT:
        raise ConfigurationError(
            f"there is no port {moved} for the metrics of broker number {number + 1}: begin with "
            "a lower port"
        )
    return f"[{host}]:{moved}" if ":" in host else f"{host}:{moved}"


def default_settings(given: Iterable[str], count: int) -> dict[str, str]:
    """What several brokers have unless somebody said otherwise: internal topics survive a death."""
    replicas = min(_REPLICAS, count)
    in_sync = 2 if replicas == _REPLICAS else 1  # of two, one may be away
    wanted = {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "zookeeper.session.timeout.ms": "6000",
    }
    named = set(given)
    return {name: value for name, value in wanted.items() if name not in named}


def automatic_count(cores: int) -> int:
    """`--brokers auto`."""
    return max(1, min(cores, MAX_AUTOMATIC))


def refuse_left_out(replicas: Mapping[int, Sequence[str]], broker_ids: Iterable[int]) -> str | None:
    """Why a folder cannot be served by these brokers alone; None when it can.

    `replicas` has the topics of each broker that has any.
    """
    here = set(broker_ids)
    away = {broker_id: topics for broker_id, topics in replicas.items() if broker_id not in here}
    if not away:
        return None
    needed = max(replicas) - min(min(replicas), *here) + 1
    topics = sorted({topic for held in away.values() for topic in held})
    shown = ", ".join(topics[:5]) + (f" and {len(topics) - 5} more" if len(topics) > 5 else "")
    left_out = _list("broker", sorted(away))
    copies = "" if len(here) >= _REPLICAS else f" --replication-factor {len(here)}"
    plan = f"moldau reassign plan TOPIC... --brokers {','.join(map(str, sorted(here)))}{copies}"
    verb = "has" if len(away) == 1 else "have"
    return (
        f"{left_out} would not run, and {verb} replicas of {shown}: start with --brokers {needed}. "
        f"To do with fewer, move them first, while all run: `{plan} > plan.json`, then `moldau "
        "reassign execute --plan plan.json`. Nothing was touched"
    )


def _list(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def restart_delay(quick_ends: int) -> float:
    """Seconds to wait before a broker that has ended is started again: none for the first time."""
    return 0.0 if quick_ends == 0 else min(30.0, 0.5 * 2.0 ** (quick_ends - 1))


def find_replicas(store: EmbeddedStore) -> Mapping[int, Sequence[str]]:
    """The topics of each broker that has any."""
    found: dict[int, set[str]] = {}
    for topic in store.children(znodes.TOPICS):
        entry = store.find(znodes.topic_path(topic))
        if entry is None:
            continue
        try:
            assignment = znodes.decode_topic(topic, entry.node.data)
        except (MoldauError, ValueError):
            continue
        for replicas in assignment.replicas:
            for broker_id in replicas:
                found.setdefault(broker_id, set()).add(topic)
    return {broker_id: sorted(topics) for broker_id, topics in found.items()}


def refuse_several_brokers(store: EmbeddedStore) -> None:
    """A broker alone must not serve a part of what several had: the rest would look lost."""
    replicas = find_replicas(store)
    if len(replicas) > 1:
        refusal = refuse_left_out(replicas, {min(replicas)})
        raise StartupError(f"this data folder is one of several brokers: {refusal}")
