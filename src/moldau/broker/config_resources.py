"""Which thing a config request is about: a topic, this broker, all brokers, a group, the loggers of
this broker, or a subscription to clients' metrics.

Shared by DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.broker.api import RequestContext, Services, Values, error_values
from moldau.broker.authorization import audit_change, require_cluster, require_group, require_topic
from moldau.config.alterations import ConfigAlteration, ConfigChange, ConfigOperation
from moldau.errors import InvalidConfigError, InvalidRequestError, KafkaError, UnknownTopicError
from moldau.model import AclOperation, BrokerId
from moldau.security.audit import AUDIT_LOGGER

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2.request import AlterConfigsResource
    from kio.schema.incremental_alter_configs.v1.request import (
        AlterConfigsResource as IncrementalResource,
    )

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

_NAMES: Final = {
    TOPIC: "Topic",
    BROKER: "Broker",
    BROKER_LOGGER: "BrokerLogger",
    CLIENT_METRICS: "ClientMetrics",
    GROUP: "Group",
}

ROOT: Final = "root"
_TRACE: Final = 5
"""Below DEBUG; Python has no name for it."""
_LEVELS: Final = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


@dataclass(frozen=True, slots=True)
class TopicResource:
    name: str


@dataclass(frozen=True, slots=True)
class BrokerResource:
    broker_id: BrokerId | None  # None: the default of all brokers


@dataclass(frozen=True, slots=True)
class GroupResource:
    group_id: str  # of a group that need not exist


@dataclass(frozen=True, slots=True)
class LoggerResource:
    """The loggers of this broker."""


@dataclass(frozen=True, slots=True)
class ClientMetricsResource:
    name: str  # of a subscription that need not exist


AnyResource: TypeAlias = (
    TopicResource | BrokerResource | GroupResource | LoggerResource | ClientMetricsResource
)


def require_resource(resource_type: int, resource_name: str, services: Services) -> AnyResource:
    """Name the resource, or raise what is wrong with it."""
    if resource_type == TOPIC:
        if resource_name not in services.image.topics:
            raise UnknownTopicError(f"there is no topic {resource_name!r}")
        return TopicResource(resource_name)
    if resource_type == BROKER:
        return BrokerResource(_broker_id(resource_name, services))
    if resource_type == GROUP:
        if not resource_name:
            raise InvalidRequestError("name a group: there are no configs of all groups")
        return GroupResource(resource_name)
    if resource_type == BROKER_LOGGER:
        if _broker_id(resource_name, services) is None:
            raise InvalidRequestError("name a broker: loggers are each broker's own")
        return LoggerResource()
    if resource_type == CLIENT_METRICS:
        if not resource_name:
            raise InvalidRequestError("name a subscription: there is none of all clients")
        return ClientMetricsResource(resource_name)
    raise InvalidRequestError(
        f"configs of resource type {resource_type} are not kept here, only those of topics (2), "
        "brokers (4), loggers of brokers (8), client metrics (16) and groups (32)"
    )


def authorize_resource(
    context: RequestContext, operation: AclOperation, resource_type: int, resource_name: str
) -> None:
    """Configs of topics and groups are theirs, all others the cluster's."""
    if resource_type == TOPIC:
        require_topic(context, operation, resource_name)
    elif resource_type == GROUP:
        require_group(context, operation, resource_name)
    else:
        require_cluster(context, operation)


async def alter_resource(
    wanted: AlterConfigsResource | IncrementalResource,
    read_changes: Callable[[], ConfigAlteration],
    context: RequestContext,
    *,
    validate_only: bool,
) -> Values:
    """Change one resource of a request; the answer says how it went."""
    failure: KafkaError | None = None
    named = wanted.resource_type, wanted.resource_name
    try:
        authorize_resource(context, AclOperation.ALTER_CONFIGS, *named)
        resource = require_resource(*named, context.services)
        await _alter(resource, read_changes(), context.services, validate_only=validate_only)
    except KafkaError as error:
        failure = error
    if failure is not None or not validate_only:
        audit_change(context, _subject(wanted), failure)
    return {
        **error_values(failure),
        "resource_type": wanted.resource_type,
        "resource_name": wanted.resource_name,
    }


async def _alter(
    resource: AnyResource, changes: ConfigAlteration, services: Services, *, validate_only: bool
) -> None:
    admin = services.admin
    match resource:
        case TopicResource(name):
            await admin.alter_topic_configs(name, changes, validate_only=validate_only)
        case GroupResource(group_id):
            await admin.alter_group_configs(group_id, changes, validate_only=validate_only)
        case BrokerResource(broker_id):
            await admin.alter_broker_configs(broker_id, changes, validate_only=validate_only)
        case ClientMetricsResource(name):
            await services.telemetry.configs.alter(name, changes, validate_only=validate_only)
        case LoggerResource() if isinstance(changes, Mapping):
            raise InvalidRequestError("levels of loggers are altered one by one (API 44)")
        case LoggerResource():
            change_levels(changes, validate_only=validate_only)


def _subject(wanted: AlterConfigsResource | IncrementalResource) -> str:
    """For the audit log: which options, and never their values."""
    kind = _NAMES.get(wanted.resource_type, f"type {wanted.resource_type}")
    names = ", ".join(config.name for config in wanted.configs)
    return f"{kind}:{wanted.resource_name} ({names})"


def _broker_id(resource_name: str, services: Services) -> BrokerId | None:
    if resource_name == "":
        return None
    try:
        broker_id = int(resource_name)
    except ValueError:
        raise InvalidRequestError(
            f"a broker is named by its number, not by {resource_name!r}"
        ) from None
    if broker_id != services.broker_id:
        raise InvalidRequestError(f"this is broker {services.broker_id}, not {broker_id}")
    return BrokerId(broker_id)


# Levels of loggers (KIP-412) are settings of the resource BROKER_LOGGER. Every logger and every
# package of loggers has a level, its own or that of the nearest one above it, and `root` is above
# them all. A level that is set lasts as long as the process.


def list_levels() -> dict[str, str]:
    """The level that is in force for each logger, by its name."""
    names = sorted(logging.root.manager.loggerDict)
    return {ROOT: _level_of(logging.root), **{name: _level_of(_find(name)) for name in names}}


def change_levels(changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """All of the changes, or none of them."""
    _check(changes)
    if validate_only:
        return
    for change in changes:
        logger = logging.root if change.name == ROOT else logging.getLogger(change.name)
        is_set = change.operation is ConfigOperation.SET and change.value is not None
        logger.setLevel(_LEVELS[change.value] if is_set and change.value else logging.NOTSET)


def _check(changes: Iterable[ConfigChange]) -> None:
    for change in changes:
        if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise InvalidRequestError(f"the level of {change.name} is no list")
        if change.name != ROOT and change.name not in logging.root.manager.loggerDict:
            raise InvalidConfigError(f"there is no logger {change.name!r}")
        if change.name == AUDIT_LOGGER:
            raise InvalidConfigError(
                f"the level of {AUDIT_LOGGER} is set where the broker is started, and by no client"
            )
        if change.operation is ConfigOperation.SET:
            if change.value not in _LEVELS:
                levels = ", ".join(_LEVELS)
                raise InvalidConfigError(f"{change.name}={change.value} is none of {levels}")
        elif change.name == ROOT:
            raise InvalidRequestError("the level of root can be changed, not removed")


def _find(name: str) -> logging.Logger:
    """The logger, or for a package that has none the one whose level holds there."""
    while name:
        found = logging.root.manager.loggerDict.get(name)
        if isinstance(found, logging.Logger):
            return found
        name = name.rpartition(".")[0]
    return logging.root


def _level_of(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    reached = [name for name, lowest in _LEVELS.items() if level >= lowest]
    return reached[-1] if reached else "TRACE"
