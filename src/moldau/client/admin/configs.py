"""Requests about settings of topics, brokers and groups. A part of `AsyncAdmin`.

A broker's own settings are known to that broker alone, so requests about them go there; everything
else may be asked of any broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin import AdminPart
from moldau.client.admin.values import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
)
from moldau.client.cluster import ClusterClient
from moldau.client.connections import BrokerConnection
from moldau.client.rules.arguments import require_list
from moldau.client.rules.broker_errors import error_for, find_error
from moldau.errors import ConfigurationError, KafkaError
from moldau.wire.apis import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, LIST_CONFIG_RESOURCES

if TYPE_CHECKING:
    from kio.schema.describe_configs.v4.response import (
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
    )
    from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
    from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse

ANY_BROKER = None
_OF_A_BROKER = (ResourceType.BROKER, ResourceType.BROKER_LOGGER)
_DESCRIBE_DROPPABLE = frozenset({"include_documentation"})

Described = Mapping[ConfigResource, tuple[ConfigEntry, ...] | KafkaError]


class ConfigAdmin(AdminPart):
    """What `AsyncAdmin` does with settings."""

    async def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        with_documentation: bool = False,
    ) -> Described:
        """The settings of topics, brokers and groups, or of those the named ones."""
        described: dict[ConfigResource, tuple[ConfigEntry, ...] | KafkaError] = {}
        for broker_id, group in _by_broker(resources).items():
            values = {
                "resources": [
                    {
                        "resource_type": resource.type.value,
                        "resource_name": resource.name,
                        "configuration_keys": None if names is None else tuple(names),
                    }
                    for resource in group
                ],
                "include_synonyms": True,
                "include_documentation": with_documentation,
            }
            connection = await _connect(self._client, broker_id)
            answer = await connection.call(DESCRIBE_CONFIGS, values, _DESCRIBE_DROPPABLE)
            for row in cast("DescribeConfigsResponse", answer).results:
                resource = ConfigResource(ResourceType(row.resource_type), row.resource_name)
                described[resource] = _read_result(row, resource)
        return described

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> Mapping[ConfigResource, KafkaError | None]:
        """Change single settings; what is not named stays."""
        altered: dict[ConfigResource, KafkaError | None] = {}
        for broker_id, group in _by_broker(changes).items():
            values = {
                "resources": [_change_values(resource, changes[resource]) for resource in group],
                "validate_only": validate_only,
            }
            connection = await _connect(self._client, broker_id)
            answer = await connection.call(INCREMENTAL_ALTER_CONFIGS, values)
            for row in cast("IncrementalAlterConfigsResponse", answer).responses:
                resource = ConfigResource(ResourceType(row.resource_type), row.resource_name)
                altered[resource] = find_error(row.error_code, row.error_message, str(resource))
        return altered

    async def list_config_resources(
        self, types: Collection[ResourceType] = ()
    ) -> tuple[ConfigResource, ...]:
        """What has settings, of these types or of all: topics, brokers, and the groups for which
        something is set."""
        connection = await _connect(self._client, ANY_BROKER)
        values = {"resource_types": [one.value for one in types]}
        answer = await connection.call(LIST_CONFIG_RESOURCES, values)
        listed = cast("ListConfigResourcesResponse", answer)
        if listed.error_code is not ErrorCode.none:
            raise error_for(listed.error_code, None, "the list of config resources")
        return tuple(
            ConfigResource(ResourceType(row.resource_type), row.resource_name)
            for row in listed.config_resources
        )


def _read_result(
    row: DescribeConfigsResult, resource: ConfigResource
) -> tuple[ConfigEntry, ...] | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, row.error_message, str(resource))
    return tuple(map(_read_entry, row.configs))


def _read_entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        name=row.name,
        value=row.value,
        source=ConfigSource(row.config_source),
        is_read_only=row.read_only,
        is_sensitive=row.is_sensitive,
        synonyms=tuple(
            ConfigSynonym(name=one.name, value=one.value, source=ConfigSource(one.source))
            for one in row.synonyms
        ),
        documentation=getattr(row, "documentation", None),  # from version 3 on
    )


def _change_values(resource: ConfigResource, changes: Iterable[ConfigChange]) -> dict[str, object]:
    return {
        "resource_type": resource.type.value,
        "resource_name": resource.name,
        "configs": [
            {"name": one.name, "config_operation": one.operation.value, "value": one.value}
            for one in changes
        ],
    }


def _by_broker(resources: Iterable[ConfigResource]) -> Mapping[int | None, list[ConfigResource]]:
    resources = require_list(
        resources, ConfigResource, "resources, like [moldau.ConfigResource.topic('clicks')]"
    )
    groups: defaultdict[int | None, list[ConfigResource]] = defaultdict(list)
    for resource in resources:
        groups[_broker_for(resource)].append(resource)
    return groups


def _broker_for(resource: ConfigResource) -> int | None:
    if resource.type not in _OF_A_BROKER or not resource.name:
        return ANY_BROKER
    if not resource.name.isdecimal():
        raise ConfigurationError(f"{resource.name!r} is not a broker id; one is a number")
    return int(resource.name)


async def _connect(client: ClusterClient, broker_id: int | None) -> BrokerConnection:
    if broker_id is None:
        return await client.pool.to_any()
    return await client.connect_to_broker(broker_id)
