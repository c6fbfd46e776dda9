"""What must hold between several options of a broker. Each check says what to do.

Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from moldau.config.broker_options import BrokerOptions


class Conflict(NamedTuple):
    """A whole message, and the option at whose line it is reported."""

    name: str
    message: str


def find_conflict(options: BrokerOptions) -> Conflict | None:
    """The first check that fails."""
    return next((found for check in _CHECKS if (found := check(options)) is not None), None)


def _check_ids(options: BrokerOptions) -> Conflict | None:
    given = {
        name: values[name]
        for name in ("broker.id", "node.id")
        for _, values in options.layers.levels()
        if name in values
    }
    if options.broker_id != options.node_id:
        return Conflict(
            name="node.id",
            message=f"node.id={given['node.id']} differs from broker.id={given['broker.id']}; "
            "set one of the two",
        )
    if options.broker_id == -1 and not options.broker_id_generation_enable:
        return Conflict(
            name="broker.id.generation.enable",
            message="broker.id is not set and broker.id.generation.enable is false; set broker.id",
        )
    generates = not options.is_alone and options.broker_id_generation_enable
    if generates and options.broker_id > options.reserved_broker_max_id:
        return Conflict(
            name="broker.id",
            message=f"broker.id={options.broker_id} is above reserved.broker.max.id="
            f"{options.reserved_broker_max_id}; take a smaller id or raise the limit",
        )
    return None


def _check_directories(options: BrokerOptions) -> Conflict | None:
    name = "log.dirs" if _is_set(options, "log.dirs") else "log.dir"
    if not options.log_dirs:
        return Conflict(name=name, message=f"{name} is empty; name at least one directory")
    repeated = _find_repeated(options.log_dirs)
    if repeated is not None:
        return Conflict(name=name, message=f"{name} names {repeated} twice; name it once")
    return None


def _check_listeners(options: BrokerOptions) -> Conflict | None:
    if not options.open_listeners:
        return Conflict(
            name="listeners",
            message="listeners leaves nothing to listen on; name an address that is not in "
            "controller.listener.names, e.g. PLAINTEXT://127.0.0.1:9092",
        )
    repeated = _find_repeated(
        f"{one.host}:{one.port}" for one in options.open_listeners if one.port != 0
    )
    if repeated is not None:
        return Conflict(
            name="listeners",
            message=f"listeners names the address {repeated} twice; give each its own port",
        )
    return None


def _check_advertised(options: BrokerOptions) -> Conflict | None:
    name = "advertised.listeners"
    opened = {listener.name for listener in options.open_listeners}
    for listener in options.told_listeners:
        if listener.is_on_all_interfaces:
            return Conflict(
                name=name,
                message=f"{name} has {listener}, which no client can connect to; name a host or "
                "an address that clients can reach",
            )
        if listener.port == 0:
            return Conflict(name=name, message=f"{name} has {listener}; name the real port")
        if listener.name not in opened:
            return Conflict(
                name=name,
                message=f"{name} has {listener}, but listeners has no {listener.name}; add it "
                "there or remove it here",
            )
    return None


def _check_inter_broker(options: BrokerOptions) -> Conflict | None:
    name = "inter.broker.listener.name"
    wanted = options.inter_broker_listener_name
    if not wanted and options.inter_broker_listener is None and not options.is_alone:
        protocol = options.security_inter_broker_protocol
        return Conflict(
            name="security.inter.broker.protocol",
            message=f"security.inter.broker.protocol={protocol} is the protocol of no listener, so "
            "brokers would not find each other; set it to that of one, or set "
            "inter.broker.listener.name",
        )
    if not wanted:
        return None
    if _is_set(options, "security.inter.broker.protocol"):
        return Conflict(
            name=name,
            message=f"{name} and security.inter.broker.protocol are both set; remove one",
        )
    if wanted.upper() not in {listener.name for listener in options.open_listeners}:
        return Conflict(
            name=name,
            message=f"{name}={wanted} is not among listeners; name one of them",
        )
    return None


def _check_session_timeouts(options: BrokerOptions) -> Conflict | None:
    if options.group_min_session_timeout_ms <= options.group_max_session_timeout_ms:
        return None
    return Conflict(
        name="group.min.session.timeout.ms",
        message=f"group.min.session.timeout.ms={options.group_min_session_timeout_ms} is larger "
        f"than group.max.session.timeout.ms={options.group_max_session_timeout_ms}; lower one or "
        "raise the other",
    )


def _check_consumer_groups(options: BrokerOptions) -> Conflict | None:
    return _check_defaults(
        options,
        "consumer",
        ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"),
    ) or _check_heartbeats(options, "consumer")


def _check_share_groups(options: BrokerOptions) -> Conflict | None:
    units = (
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "assignment.interval.ms",
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
    )
    return _check_defaults(options, "share", units) or _check_heartbeats(options, "share")


def _check_streams_groups(options: BrokerOptions) -> Conflict | None:
    copies, most = (
        options.group_streams_num_standby_replicas,
        options.group_streams_max_standby_replicas,
    )
    if copies > most:
        name = "group.streams.num.standby.replicas"
        return Conflict(
            name=name,
            message=f"{name}={copies} is more than group.streams.max.standby.replicas={most}; "
            "lower it or raise the bound",
        )
    units = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    return _check_defaults(options, "streams", units) or _check_heartbeats(options, "streams")


def _check_defaults(options: BrokerOptions, kind: str, units: tuple[str, ...]) -> Conflict | None:
    """What a group has by default lies within what a single one may be given."""
    for unit in units:
        name, least, most = (f"group.{kind}.{word}{unit}" for word in ("", "min.", "max."))
        value, lowest, highest = (_number(options, one) for one in (name, least, most))
        if not lowest <= value <= highest:
            return Conflict(
                name=next((one for one in (name, least, most) if _is_set(options, one)), name),
                message=f"{name}={value} is not within {least}={lowest} and {most}={highest}; "
                "change it or the bounds",
            )
    return None


def _check_heartbeats(options: BrokerOptions, kind: str) -> Conflict | None:
    heartbeat, session = (f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms")
    heartbeat_ms, session_ms = _number(options, heartbeat), _number(options, session)
    if heartbeat_ms < session_ms:
        return None
    return Conflict(
        name=heartbeat if _is_set(options, heartbeat) else session,
        message=f"{heartbeat}={heartbeat_ms} is not smaller than {session}={session_ms}, so "
        "members would be lost between two heartbeats; lower it",
    )


def _number(options: BrokerOptions, name: str) -> int:
    return cast("int", options.value_of(name))


def _check_compaction_lag(options: BrokerOptions) -> Conflict | None:
    lowest, highest = (
        options.log_cleaner_min_compaction_lag_ms,
        options.log_cleaner_max_compaction_lag_ms,
    )
    if lowest <= highest:
        return None
    return Conflict(
        name="log.cleaner.min.compaction.lag.ms",
        message=f"log.cleaner.min.compaction.lag.ms={lowest} is larger than "
        f"log.cleaner.max.compaction.lag.ms={highest}; lower one or raise the other",
    )


def _check_follower_waits(options: BrokerOptions) -> Conflict | None:
    if options.replica_fetch_wait_max_ms <= options.replica_lag_time_max_ms:
        return None
    return Conflict(
        name="replica.fetch.wait.max.ms",
        message=f"replica.fetch.wait.max.ms={options.replica_fetch_wait_max_ms} is larger than "
        f"replica.lag.time.max.ms={options.replica_lag_time_max_ms}, so idle followers would fall "
        "out of sync; lower it",
    )


def _is_set(options: BrokerOptions, name: str) -> bool:
    return any(name in values for _, values in options.layers.levels())


def _find_repeated(items: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None


_CHECKS: tuple[Callable[[BrokerOptions], Conflict | None], ...] = (
    _check_ids,
    _check_directories,
    _check_listeners,
    _check_advertised,
    _check_inter_broker,
    _check_session_timeouts,
    _check_consumer_groups,
    _check_share_groups,
    _check_streams_groups,
    _check_compaction_lag,
    _check_follower_waits,
)
