"""Writes the dynamic configs of topics, brokers and groups, and announces them. A shell.

Any broker may change a config, so every write names the version that it is based on; who was
overtaken by another broker gets `BadVersionError` and is called again by `ClusterAdmin`. Writers of
this broker wait for each other, so that many of them at once do not lose to each other for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from moldau.cluster import layout, quota_nodes
from moldau.cluster.change_notifications import catch_up
from moldau.cluster.layout import ConfigEntity
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.topic_creation import CheckConfigs
from moldau.config.alterations import ConfigAlteration, FindListDefault, apply_config_changes
from moldau.config.describe import find_unknown
from moldau.config.topic_options import with_confirmation
from moldau.coordination.port import (
    ANY_VERSION,
    Check,
    Coordination,
    Create,
    Operation,
    SetData,
)
from moldau.errors import MalformedNodeError, UnknownTopicError
from moldau.model import BrokerId
from moldau.quotas import QuotaEntity

_log = logging.getLogger("moldau.cluster")

ChangeConfigs = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From the configs that are set to those that shall be."""


ProtectConfigs = Callable[[Mapping[str, str]], Awaitable[Mapping[str, str]]]


async def _as_they_are(configs: Mapping[str, str]) -> Mapping[str, str]:
    return configs


class ConfigRules(NamedTuple):
    """What the declarations of the options know, handed in by the broker."""

    check: CheckConfigs
    find_list_default: FindListDefault
    protect: ProtectConfigs = _as_they_are
    """Makes of settings what may stand in the store; comes before `check`, and may take a while."""


BrokerConfigRules = Callable[[BrokerId | None], ConfigRules]
"""Those of one broker, or of the settings for all brokers (None), which may hold less."""


class ConfigWriter:
    """One attempt per call. Returns the configs that are set after it."""

    def __init__(
        self,
        coordination: Coordination,
        publisher: MetadataPublisher,
        topic_rules: ConfigRules,
        broker_rules: BrokerConfigRules,
        group_rules: ConfigRules,
    ) -> None:
        self._coordination = coordination
        self._publisher = publisher
        self._topic_rules = topic_rules
        self._broker_rules = broker_rules
        self._group_rules = group_rules
        self._writing = asyncio.Lock()

    async def alter_topic(
        self, name: str, changes: ConfigAlteration, validate_only: bool
    ) -> Mapping[str, str]:
        def change(current: Mapping[str, str]) -> Mapping[str, str]:
            altered = apply_config_changes(current, changes, self._topic_rules.find_list_default)
            if isinstance(changes, Mapping):
                return altered
            return with_confirmation(altered, [one.name for one in changes])

        async with self._writing:
            if name not in self._publisher.image.topics:
                raise UnknownTopicError(f"there is no topic {name!r}")
            path = layout.topic_config_path(name)
            known = self._publisher.image.topics[name].configs
            operations, configs = await self._plan(path, known, change, self._topic_rules)
            if operations and not validate_only:
                # A topic deleted meanwhile must not leave its config to a later namesake.
                exists = Check(path=layout.topic_path(name), version=ANY_VERSION)
                announced = _announcement(ConfigEntity("topics", name))
                await self._coordination.transact((exists, *operations, announced))
                self._publisher.apply_topic_configs(name, configs)
            return configs

    async def alter_broker(
        self, broker_id: BrokerId | None, changes: ConfigAlteration, validate_only: bool
    ) -> Mapping[str, str]:
        async with self._writing:
            path = layout.broker_config_path(broker_id)
            known = self._publisher.image.broker_config(broker_id)
            rules = self._broker_rules(broker_id)
            change = _altering(changes, rules)
            operations, configs = await self._plan(path, known, change, rules)
            if operations and not validate_only:
                entity = layout.DEFAULT_BROKER if broker_id is None else str(broker_id)
                announced = _announcement(ConfigEntity("brokers", entity))
                await self._coordination.transact((*operations, announced))
                self._publisher.apply_broker_configs(broker_id, configs)
                for unknown in find_unknown(configs):
                    _log.warning("set for %s: %s", _whose(broker_id), unknown)
            return configs

    async def alter_group(
        self, group_id: str, changes: ConfigAlteration, validate_only: bool
    ) -> Mapping[str, str]:
        async with self._writing:
            path = layout.group_config_path(group_id)
            known = self._publisher.image.group_config(group_id)
            change = _altering(changes, self._group_rules)
            operations, configs = await self._plan(path, known, change, self._group_rules)
            if operations and not validate_only:
                name = layout.encode_group_name(group_id)
                announced = _announcement(ConfigEntity("groups", name))
                await self._coordination.transact((*operations, announced))
                self._publisher.apply_group_configs(group_id, configs)
            return configs

    async def alter_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None]
    ) -> Mapping[str, float]:
        """Set quotas of an entity, and remove those whose new limit is None."""
        async with self._writing:
            path = quota_nodes.quota_path(entity)
            node = await self._coordination.get(path)
            config: Mapping[str, str] = {}
            known = self._publisher.image.quotas.get(entity, {})
            if node is not None:
                try:
                    config = layout.decode_config(path, node.data)
                    known = quota_nodes.decode_quotas(entity, node.data)
                except MalformedNodeError as error:
                    _log.error("it is written anew, with the quotas that are known: %s", error)
            quotas = {
                name: limit for name, limit in {**known, **changes}.items() if limit is not None
            }
            data = layout.encode_config(quota_nodes.with_quotas(config, quotas))
            if node is None:
                parents = await self._missing_parents(entity)
                operations: list[Operation] = [Create(path=one, data=b"") for one in parents]
                operations.append(Create(path=path, data=data))
            else:
                operations = [SetData(path=path, data=data, version=node.version)]
            kind, _, name = quota_nodes.entity_path(entity).partition("/")
            announced = _announcement(ConfigEntity(kind, name))
            await self._coordination.transact((*operations, announced))
            self._publisher.apply_quotas(entity, quotas)
            return quotas

    async def _missing_parents(self, entity: QuotaEntity) -> list[str]:
        paths = quota_nodes.parents(entity)
        nodes = await self._coordination.get_many(paths)
        return [path for path, node in zip(paths, nodes, strict=True) if node is None]

    async def _plan(
        self,
        path: str,
        known: Mapping[str, str],
        change: ChangeConfigs,
        rules: ConfigRules,
    ) -> tuple[list[Operation], Mapping[str, str]]:
        """What to write, nothing when all is as it shall be; and the configs after it.

        `known` counts where the node is damaged, and writing repairs it. What is read may be old:
        if there is something to write, its version tells; if there is nothing, it is read again.
        """
        operations, configs = await self._plan_once(path, known, change, rules)
        if not operations:
            await catch_up(self._coordination)
            operations, configs = await self._plan_once(path, known, change, rules)
        return operations, configs

    async def _plan_once(
        self,
        path: str,
        known: Mapping[str, str],
        change: ChangeConfigs,
        rules: ConfigRules,
    ) -> tuple[list[Operation], Mapping[str, str]]:
        node = await self._coordination.get(path)
        try:
            current = {} if node is None else layout.decode_config(path, node.data)
            is_damaged = False
        except MalformedNodeError:
            current, is_damaged = dict(known), True
        configs = dict(await rules.protect(change(current)))
        rules.check(configs)
        if configs == current and not is_damaged:
            return [], configs
        data = layout.encode_config(configs)
        if node is None:
            return [Create(path=path, data=data)], configs
        return [SetData(path=path, data=data, version=node.version)], configs


def _whose(broker_id: BrokerId | None) -> str:
    return "all brokers" if broker_id is None else f"broker {broker_id}"


def _altering(changes: ConfigAlteration, rules: ConfigRules) -> ChangeConfigs:
    return lambda current: apply_config_changes(current, changes, rules.find_list_default)


def _announcement(entity: ConfigEntity) -> Operation:
    data = layout.encode_config_change(entity)
    return Create(path=layout.CONFIG_CHANGE_PREFIX, data=data, sequential=True)
