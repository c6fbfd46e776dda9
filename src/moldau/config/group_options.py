"""The options of single groups, which `kafka-configs --entity-type groups` sets.

A group may be configured before it exists; what it does not set is the broker's. The broker's
`group.consumer.min.…` and `.max.…` bound what may be set. Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.config.broker_options import BrokerOptions
from moldau.config.kinds import INT, at_least
from moldau.config.option import Option, OptionSet, Reload, option
from moldau.config.spelling import suggest
from moldau.errors import InvalidConfigError


class GroupConfigOptions(OptionSet):
    """What one group can have of its own. Kafka's words: `GroupConfig`."""

    consumer_session_timeout_ms = option(
        "consumer.session.timeout.ms",
        INT,
        45_000,
        "With the consumer protocol, how long a silent member of the group is kept. Bounded by "
        "group.consumer.min.session.timeout.ms and group.consumer.max.session.timeout.ms, and "
        "larger than consumer.heartbeat.interval.ms.",
        at_least(1),
        reload=Reload.CLUSTER_WIDE,
        broker_default="group.consumer.session.timeout.ms",
    )
    consumer_heartbeat_interval_ms = option(
        "consumer.heartbeat.interval.ms",
        INT,
        5_000,
        "With the consumer protocol, how often members of the group are told to report. Bounded "
        "by group.consumer.min.heartbeat.interval.ms and group.consumer.max.heartbeat.interval.ms.",
        at_least(1),
        reload=Reload.CLUSTER_WIDE,
        broker_default="group.consumer.heartbeat.interval.ms",
    )

    @classmethod
    def check_all(cls, settings: Mapping[str, str], broker: BrokerOptions) -> None:
        """Raise InvalidConfigError unless a group can have exactly these settings."""
        for name, text in settings.items():
            declared = cls.find_declaration(name)
            if declared is None:
                hint = suggest(name, cls.declarations())
                raise InvalidConfigError(f"Unknown group config name: {name}{hint}")
            try:
                declared.parse(text)
            except ValueError as fault:
                raise InvalidConfigError(declared.message(text, fault)) from None
        session_ms = value_in_group(
            cls.consumer_session_timeout_ms, settings, broker.group_consumer_session_timeout_ms
        )
        heartbeat_ms = value_in_group(
            cls.consumer_heartbeat_interval_ms,
            settings,
            broker.group_consumer_heartbeat_interval_ms,
        )
        _check_bounds(cls.consumer_session_timeout_ms, session_ms, broker)
        _check_bounds(cls.consumer_heartbeat_interval_ms, heartbeat_ms, broker)
        if session_ms <= heartbeat_ms:
            raise InvalidConfigError(
                f"consumer.session.timeout.ms={session_ms} is not larger than "
                f"consumer.heartbeat.interval.ms={heartbeat_ms}; raise one or lower the other"
            )


def value_in_group(declared: Option[int], settings: Mapping[str, str], otherwise: int) -> int:
    """What a group has set; `otherwise` where it has not, or where the text is no value: somebody
    may have written it past the brokers, and its members have to be served."""
    text = settings.get(declared.name)
    try:
        return otherwise if text is None else declared.parse(text)
    except ValueError:
        return otherwise


def _check_bounds(declared: Option[int], value: int, broker: BrokerOptions) -> None:
    kind, _, rest = declared.name.partition(".")
    for bound, is_kept in (("min", int.__ge__), ("max", int.__le__)):
        name = f"group.{kind}.{bound}.{rest}"
        limit = broker.value_of(name)
        if isinstance(limit, int) and not is_kept(value, limit):
            side = "smaller" if bound == "min" else "larger"
            raise InvalidConfigError(f"{declared.name}={value} is {side} than {name}={limit}")
