"""Subscriptions to clients' own metrics (KIP-714), kept in `/config/client-metrics`. A shell.

They are few, and nothing else depends on them; so they are no part of the metadata image. Every
write raises the version of the folder's own node, and every broker reads all of them again when it
sees that. Kafka keeps them in its quorum; the layout here is that of the other configs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from moldau.cluster.change_notifications import catch_up
from moldau.cluster.layout import decode_config, encode_config
from moldau.coordination.port import (
    BadVersionError,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)
from moldau.errors import InvalidConfigError, MalformedNodeError

if TYPE_CHECKING:
    from moldau.config.alterations import ConfigAlteration
    from moldau.metrics.client_metrics import ClientSubscription

_log = logging.getLogger("moldau.cluster")

FOLDER: Final = "/config/client-metrics"
MOST_SUBSCRIPTIONS: Final = 100
ATTEMPTS: Final = 10


class ClientMetricsConfigs:
    """`begin` once; then `settings` and `subscriptions` are those of the store."""

    def __init__(
        self,
        coordination: Coordination,
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self._coordination = coordination
        self._spawn = spawn
        self.settings: Mapping[str, Mapping[str, str]] = {}  # by name; replaced, never changed
        self.subscriptions: tuple[ClientSubscription, ...] = ()

    def begin(self) -> None:
        self._coordination.watch_data(FOLDER, self._on_change)
        self._on_change()

    def _on_change(self) -> None:
        self._spawn("reading of subscriptions to client metrics", self._read_again())

    async def _read_again(self) -> None:
        try:
            await self.read()
        except CoordinationError as error:  # a new session tells every watch again
            _log.info("subscriptions to client metrics are not read: %s", error)

    async def read(self) -> None:
        names = await self._coordination.children(FOLDER)
        nodes = await self._coordination.get_many([f"{FOLDER}/{name}" for name in names])
        found: dict[str, Mapping[str, str]] = {}
        for name, node in zip(names, nodes, strict=True):
            try:
                if node is not None:
                    found[unquote(name)] = decode_config(f"{FOLDER}/{name}", node.data)
            except MalformedNodeError as error:
                _log.error("the subscription %s is passed over: %s", unquote(name), error)
        self.settings = found
        self.subscriptions = tuple(
            subscription
            for name, settings in found.items()
            if (subscription := _read_subscription(name, settings)) is not None
        )

    async def alter(self, name: str, changes: ConfigAlteration, *, validate_only: bool) -> None:
        """Change single options of a subscription, or all of them."""
        from moldau.config.alterations import apply_config_changes
        from moldau.config.client_metrics_options import ClientMetricsOptions

        find_default = ClientMetricsOptions.find_list_default
        await self._write(
            name,
            lambda current: apply_config_changes(current, changes, find_default),
            validate_only=validate_only,
        )

    async def _write(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        validate_only: bool,
    ) -> None:
        """By compare-and-set, again where another broker was faster; without settings it goes."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._try(name, change, validate_only=validate_only)
                break
            except (BadVersionError, NodeExistsError, NoNodeError):
                if attempt == ATTEMPTS:
                    raise
        await self.read()

    async def _try(
        self,
        name: str,
        change: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        validate_only: bool,
        is_current: bool = False,  # what is read
    ) -> None:
        from moldau.config.client_metrics_options import ClientMetricsOptions

        path = f"{FOLDER}/{quote(name, safe='')}"
        node = await self._coordination.get(path)
        settings = change({} if node is None else decode_config(path, node.data))
        ClientMetricsOptions.check_all(settings)
        if node is None and len(self.settings) >= MOST_SUBSCRIPTIONS:
            raise InvalidConfigError(f"there are {MOST_SUBSCRIPTIONS} subscriptions already")
        if validate_only:
            return
        operation: Operation | None
        if not settings:
            operation = None if node is None else Delete(path=path, version=node.version)
        elif node is None:
            operation = Create(path=path, data=encode_config(settings))
        else:
            operation = SetData(path=path, data=encode_config(settings), version=node.version)
        if operation is None and not is_current:
            await catch_up(self._coordination)
            await self._try(name, change, validate_only=validate_only, is_current=True)
        elif operation is not None:
            await self._require_folder()
            await self._coordination.transact((operation, SetData(path=FOLDER, data=b"")))

    async def _require_folder(self) -> None:
        if await self._coordination.get(FOLDER) is None:
            try:
                await self._coordination.create(FOLDER, parents=True)
            except NodeExistsError:
                return


def _read_subscription(name: str, settings: Mapping[str, str]) -> ClientSubscription | None:
    from moldau.config.client_metrics_options import ClientMetricsOptions
    from moldau.metrics.client_metrics import ClientSubscription

    try:
        ClientMetricsOptions.check_all(settings)
    except InvalidConfigError as error:  # written past the brokers
        _log.error("the subscription %s is passed over: %s", name, error)
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
