"""Writes the dynamic configs of topics, brokers and groups, and announces them. A shell.

Any broker may change a config, so every write names the version that it is based on; who was
overtaken by another broker gets `BadVersionError` and is called again by `ClusterAdmin`. Writers of
this broker wait for each other, so that many of them at once do not lose to each other for long.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from moldau.cluster import entity_znodes, znodes
from moldau.cluster.change_notifications import announce_config, catch_up
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.topic_creation import CheckConfigs
from moldau.cluster.znodes import decode_config, encode_config
from moldau.config.alterations import ConfigAlteration, FindListDefault, apply_config_changes
from moldau.config.client_metrics_options import ClientMetricsOptions
from moldau.config.describe import find_unknown
from moldau.config.topic_options import with_confirmation
from moldau.coordination.port import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
    write_over,
)
from moldau.errors import InvalidConfigError, MalformedNodeError, UnknownTopicError
from moldau.metrics.client_metrics import ClientSubscription
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
            path = znodes.topic_config_path(name)
            known = self._publisher.image.topics[name].configs
            operations, configs = await self._plan(path, known, change, self._topic_rules)
            if operations and not validate_only:
                # A topic deleted meanwhile must not leave its config to a later namesake.
                exists = Check(path=znodes.topic_path(name), version=ANY_VERSION)
                announced = announce_config("topics", name)
                await self._coordination.transact((exists, *operations, announced))
                self._publisher.apply_topic_configs(name, configs)
            return configs

    async def alter_broker(
        self, broker_id: BrokerId | None, changes: ConfigAlteration, validate_only: bool
    ) -> Mapping[str, str]:
        async with self._writing:
            path = znodes.broker_config_path(broker_id)
            known = self._publisher.image.broker_config(broker_id)
            rules = self._broker_rules(broker_id)
            operations, configs = await self._plan(path, known, _altering(changes, rules), rules)
            if operations and not validate_only:
                entity = znodes.DEFAULT_BROKER if broker_id is None else str(broker_id)
                announced = announce_config("brokers", entity)
                await self._coordination.transact((*operations, announced))
                self._publisher.apply_broker_configs(broker_id, configs)
                whose = "all brokers" if broker_id is None else f"broker {broker_id}"
                for unknown in find_unknown(configs):
                    _log.warning("set for %s: %s", whose, unknown)
            return configs

    async def alter_group(
        self, group_id: str, changes: ConfigAlteration, validate_only: bool
    ) -> Mapping[str, str]:
        async with self._writing:
            path = znodes.group_config_path(group_id)
            known = self._publisher.image.group_config(group_id)
            change = _altering(changes, self._group_rules)
            operations, configs = await self._plan(path, known, change, self._group_rules)
            if operations and not validate_only:
                announced = announce_config("groups", znodes.encode_group_name(group_id))
                await self._coordination.transact((*operations, announced))
                self._publisher.apply_group_configs(group_id, configs)
            return configs

    async def alter_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None]
    ) -> Mapping[str, float]:
        """Set quotas of an entity, and remove those whose new limit is None."""
        async with self._writing:
            path = entity_znodes.quota_path(entity)
            node = await self._coordination.get(path)
            config: Mapping[str, str] = {}
            known = self._publisher.image.quotas.get(entity, {})
            if node is not None:
                try:
                    config = znodes.decode_config(path, node.data)
                    known = entity_znodes.decode_quotas(entity, node.data)
                except MalformedNodeError as error:
                    _log.error("it is written anew, with the quotas that are known: %s", error)
            quotas = {
                name: limit for name, limit in {**known, **changes}.items() if limit is not None
            }
            data = znodes.encode_config(entity_znodes.with_quotas(config, quotas))
            parents = () if node is not None else await self._find_missing_parents(entity)
            kind, _, name = entity_znodes.quota_entity_path(entity).partition("/")
            await self._coordination.transact(
                (
                    *(Create(path=parent) for parent in parents),
                    write_over(path, node, data),
                    announce_config(kind, name),
                )
            )
            self._publisher.apply_quotas(entity, quotas)
            return quotas

    async def _find_missing_parents(self, entity: QuotaEntity) -> Sequence[str]:
        paths = entity_znodes.quota_parents(entity)
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
            current = {} if node is None else znodes.decode_config(path, node.data)
            is_damaged = False
        except MalformedNodeError:
            current, is_damaged = dict(known), True
        configs = dict(await rules.protect(change(current)))
        rules.check(configs)
        if configs == current and not is_damaged:
            return [], configs
        return [write_over(path, node, znodes.encode_config(configs))], configs


def _altering(changes: ConfigAlteration, rules: ConfigRules) -> ChangeConfigs:
    return lambda current: apply_config_changes(current, changes, rules.find_list_default)


# Subscriptions to clients' own metrics (KIP-714), kept in `/config/client-metrics`. A shell.
#
# They are few, and nothing else depends on them; so they are no part of the metadata image. Every
# write raises the version of the folder's own node, and every broker reads all of them again when
# it sees that. Kafka keeps them in its quorum; the layout here is that of the other configs.


CLIENT_METRICS_CONFIGS: Final = "/config/client-metrics"
MOST_SUBSCRIPTIONS: Final = 100
WRITE_ATTEMPTS: Final = 10


class ClientMetricsConfigs:
    """`start` once; then `settings` and `subscriptions` are those of the store."""

    def __init__(
        self,
        coordination: Coordination,
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self._coordination = coordination
        self._spawn = spawn
        self.settings: Mapping[str, Mapping[str, str]] = {}  # by name; replaced, never changed
        self.subscriptions: tuple[ClientSubscription, ...] = ()

    def start(self) -> None:
        self._coordination.watch_data(CLIENT_METRICS_CONFIGS, self._on_change)
        self._on_change()

    def _on_change(self) -> None:
        self._spawn("reading of subscriptions to client metrics", self._refresh())

    async def _refresh(self) -> None:
        try:
            await self.read()
        except CoordinationError as error:  # a new session tells every watch again
            _log.info("subscriptions to client metrics are not read: %s", error)

    async def read(self) -> None:
        names = await self._coordination.children(CLIENT_METRICS_CONFIGS)
        paths = [f"{CLIENT_METRICS_CONFIGS}/{name}" for name in names]
        nodes = await self._coordination.get_many(paths)
        found: dict[str, Mapping[str, str]] = {}
        for name, path, node in zip(names, paths, nodes, strict=True):
            try:
                if node is not None:
                    found[unquote(name)] = decode_config(path, node.data)
            except MalformedNodeError as error:
                _log.error("the subscription %s is ignored: %s", unquote(name), error)
        self.settings = found
        self.subscriptions = tuple(
            subscription
            for name, settings in found.items()
            if (subscription := _read_subscription(name, settings)) is not None
        )

    async def alter(self, name: str, changes: ConfigAlteration, *, validate_only: bool) -> None:
        """Change single options of a subscription, or all of them; without any it is removed. By
        compare-and-set, again where another broker was faster."""
        for attempt in range(1, WRITE_ATTEMPTS + 1):
            try:
                await self._write(name, changes, validate_only=validate_only)
                break
            except (BadVersionError, NodeExistsError, NoNodeError):
                if attempt == WRITE_ATTEMPTS:
                    raise
        await self.read()

    async def _write(
        self,
        name: str,
        changes: ConfigAlteration,
        *,
        validate_only: bool,
        is_current: bool = False,  # what is read
    ) -> None:
        path = f"{CLIENT_METRICS_CONFIGS}/{quote(name, safe='')}"
        node = await self._coordination.get(path)
        settings = apply_config_changes(
            {} if node is None else decode_config(path, node.data),
            changes,
            ClientMetricsOptions.find_list_default,
        )
        ClientMetricsOptions.check_all(settings)
        if node is None and len(self.settings) >= MOST_SUBSCRIPTIONS:
            raise InvalidConfigError(f"there are {MOST_SUBSCRIPTIONS} subscriptions already")
        if validate_only:
            return
        operation: Operation | None
        if settings:
            operation = write_over(path, node, encode_config(settings))
        else:
            operation = None if node is None else Delete(path=path, version=node.version)
        if operation is None and not is_current:
            await catch_up(self._coordination)
            await self._write(name, changes, validate_only=validate_only, is_current=True)
        elif operation is not None:
            await self._require_folder()
            await self._coordination.transact(
                (operation, SetData(path=CLIENT_METRICS_CONFIGS, data=b""))
            )

    async def _require_folder(self) -> None:
        if await self._coordination.get(CLIENT_METRICS_CONFIGS) is None:
            try:
                await self._coordination.create(CLIENT_METRICS_CONFIGS, parents=True)
            except NodeExistsError:
                return


def _read_subscription(name: str, settings: Mapping[str, str]) -> ClientSubscription | None:
    try:
        ClientMetricsOptions.check_all(settings)
    except InvalidConfigError as error:  # written past the brokers
        _log.error("the subscription %s is ignored: %s", name, error)
        return None
    declared = ClientMetricsOptions
    metrics = settings.get("metrics")
    interval = settings.get("interval.ms")
    patterns = declared.match.parse(settings.get("match", ""))
    pairs = (item.partition("=") for item in patterns)
    return ClientSubscription(
        name=name,
        metrics=() if metrics is None else declared.metrics.parse(metrics),
        interval_ms=declared.interval_ms.default or 0
        if interval is None
        else declared.interval_ms.parse(interval),
        match={key.strip(): pattern for key, _, pattern in pairs},
    )
