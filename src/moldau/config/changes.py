"""What the declarations know about changes of dynamic configs (AlterConfigs and its like).

Settings are checked as a whole, so a change that is refused changes nothing. Applying and storing
them is `cluster`'s. Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.config.broker_options import BrokerOptions
from moldau.config.describe import describe_broker, describe_topic
from moldau.config.group_options import GroupConfigOptions
from moldau.config.kinds import OptionType, split_list
from moldau.config.topic_options import TopicOptions
from moldau.errors import ConfigurationError, InvalidConfigError


def check_topic_settings(settings: Mapping[str, str], broker: BrokerOptions) -> None:
    """Raise InvalidConfigError unless a topic can have exactly these settings."""
    TopicOptions.check_all(settings, broker)


def check_broker_settings(settings: Mapping[str, str], broker: BrokerOptions) -> None:
    """Raise InvalidConfigError unless this broker can have exactly these dynamic settings."""
    for name, value in settings.items():
        BrokerOptions.check(name, value)
    _check_together(broker, settings, broker.layers.default_dynamic)


def check_default_broker_settings(settings: Mapping[str, str], broker: BrokerOptions) -> None:
    """Raise InvalidConfigError unless all brokers can have these; tried out on this one."""
    for name, value in settings.items():
        BrokerOptions.check(name, value, cluster_wide=True)
    _check_together(broker, broker.layers.dynamic, settings)


def check_group_settings(settings: Mapping[str, str], broker: BrokerOptions) -> None:
    """Raise InvalidConfigError unless a group can have exactly these settings."""
    GroupConfigOptions.check_all(settings, broker)


def find_topic_list(name: str, broker: BrokerOptions) -> str | None:
    """What a list of a topic is when the topic does not set it; None for what is no list."""
    found = (one for one in describe_topic({}, broker) if one.name == name)
    return next((one.value or "" for one in found if one.type is OptionType.LIST), None)


def find_broker_list(name: str, broker: BrokerOptions) -> str | None:
    """What a list of this broker is at the moment; None for what is no list."""
    found = (one for one in describe_broker(broker) if one.name == name)
    return next((one.value or "" for one in found if one.type is OptionType.LIST), None)


def append_to_list(current: str, added: str) -> str:
    """A comma-separated list with the items that it does not have yet."""
    items = split_list(current)
    return ",".join((*items, *(item for item in split_list(added) if item not in items)))


def subtract_from_list(current: str, removed: str) -> str:
    """A comma-separated list without some of its items."""
    gone = split_list(removed)
    return ",".join(item for item in split_list(current) if item not in gone)


def _check_together(
    broker: BrokerOptions, dynamic: Mapping[str, str], default_dynamic: Mapping[str, str]
) -> None:
    try:
        BrokerOptions.resolve(broker.layers.static, dynamic, default_dynamic)
    except ConfigurationError as fault:
        raise InvalidConfigError(str(fault)) from None
