"""Lets the settings that are in the store come into force, and encrypts them anew when asked to.

A shell, owned by the event loop. What is no secret is in force at once: partitions read their
options as soon as the image changes. Passwords follow as soon as they are decrypted, off the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from moldau.broker.stored_secrets import StoredSecrets
from moldau.cluster.cluster_admin import ClusterAdmin
from moldau.config.current import CurrentBrokerOptions
from moldau.errors import KafkaError
from moldau.model import BrokerId
from moldau.tasks import TaskSupervisor

_log = logging.getLogger("moldau.broker")

_Settings = Mapping[str, str]


class DynamicSettings:
    """Of one broker, and of all."""

    def __init__(
        self,
        current: CurrentBrokerOptions,
        secrets: StoredSecrets,
        supervisor: TaskSupervisor,
        on_applied: Callable[[], None],
    ) -> None:
        self._current = current
        self._secrets = secrets
        self._supervisor = supervisor
        self._on_applied = on_applied
        self._wanted: tuple[_Settings, _Settings] = ({}, {})  # this broker's, those of all
        self._in_force: tuple[_Settings, _Settings] = ({}, {})  # the same, with passwords in clear
        self._reading: asyncio.Task[None] | None = None

    def follow(self, own: _Settings, of_all: _Settings) -> None:
        """They stand in the store now."""
        self._wanted = own, of_all
        self._apply()
        is_read = self._secrets.is_read(own) and self._secrets.is_read(of_all)
        if self._reading is None and not is_read:
            self._reading = self._supervisor.spawn("reading of passwords", self._read())

    async def _read(self) -> None:
        try:
            wanted = None
            while wanted is not self._wanted:  # others may come meanwhile
                wanted = self._wanted
                for settings in wanted:
                    await self._secrets.read(settings)
        finally:
            self._reading = None
        self._apply()

    def _apply(self) -> None:
        own, of_all = map(self._secrets.reveal, self._wanted, self._in_force)
        self._in_force = own, of_all
        self._current.apply(own, of_all)
        self._on_applied()

    async def wait_until_read(self) -> None:
        """Who logs in before would not be known."""
        if self._reading is not None:
            await asyncio.wait((self._reading,))

    async def encrypt_anew(self, admin: ClusterAdmin, broker_id: BrokerId) -> None:
        """What `password.encoder.old.secret` has encrypted: with the present secret."""
        if not self._secrets.has_old:
            return
        for whose in (broker_id, None):
            try:
                await admin.alter_broker_configs(whose, ())
            except KafkaError as error:
                _log.error(
                    "passwords in the store stay encrypted with password.encoder.old.secret; the "
                    "next start tries again: %s",
                    error,
                )
                return
        _log.warning(
            "the passwords of broker %d in the store are encrypted with password.encoder.secret: "
            "take password.encoder.old.secret out of its settings",
            broker_id,
        )
