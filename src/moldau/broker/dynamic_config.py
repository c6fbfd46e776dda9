"""Dynamic broker configuration: options and passwords that are set while the broker runs.

Options without secrets are applied when the image changes. Passwords are encrypted in the store and
in the image, and clear in the options; they are decrypted in a worker, since that takes long on
purpose, and applied afterwards. As Kafka's `DynamicBrokerConfig`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from moldau.cluster.cluster_admin import ClusterAdmin
from moldau.config.broker_options import BrokerOptions, CurrentBrokerOptions
from moldau.config.listener_options import find_listener_declaration
from moldau.errors import InvalidConfigError, KafkaError
from moldau.model import BrokerId
from moldau.security.password_encoder import DecodedPassword, PasswordEncoder, is_encoded
from moldau.security.rules.sasl import parse_jaas
from moldau.tasks import TaskSupervisor
from moldau.workers import Workers

_security_log = logging.getLogger("moldau.broker.security")

_JAAS = "sasl.jaas.config"
_MOST_KNOWN: Final = 10_000
_NOTHING: Final[Mapping[str, str]] = {}

_log = logging.getLogger("moldau.broker")


class StoredPasswords:
    """Of one broker; owned by its event loop."""

    def __init__(self, options: BrokerOptions, workers: Workers) -> None:
        """Raises MissingExtraError."""
        self._workers = workers
        self._encoder: PasswordEncoder | None = None
        # What was decrypted, by its text in the store; None for what cannot be.
        self._known: dict[str, DecodedPassword | None] = {}
        self.has_old = options.password_encoder_old_secret is not None
        """Whether there may be texts in the store that are to be encrypted anew."""
        if options.password_encoder_secret is not None:
            self._encoder = PasswordEncoder(
                options.password_encoder_secret,
                old_secret=options.password_encoder_old_secret,
                key_factory=options.password_encoder_keyfactory_algorithm,
                key_bits=options.password_encoder_key_length,
                iterations=options.password_encoder_iterations,
            )

    async def protect(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        """Settings as they are stored; what the former secret has encrypted is encrypted anew."""
        await self.read(settings)
        stored = {}
        for name, value in settings.items():
            stored[name] = await self._protect(name, value) if _is_secret(name) else value
        return stored

    async def _protect(self, name: str, value: str) -> str:
        encoder, password = self._encoder, value
        if is_encoded(value):
            known = self._known.get(value)
            if known is None or not known.is_by_old_secret:
                return value
            password = known.password
        if encoder is None:
            _security_log.warning(
                "%s is kept in the coordination store as it is, and who can read the store can "
                "read it: set password.encoder.secret to have it encrypted",
                name,
            )
            return value
        encoded = await self._workers.run(lambda: encoder.encode(password))
        self._remember(encoded, DecodedPassword(password, is_by_old_secret=False))
        return encoded

    def is_read(self, settings: Mapping[str, str]) -> bool:
        """Whether nothing is left to decrypt."""
        return not self._unread(settings)

    async def read(self, settings: Mapping[str, str]) -> None:
        """Decrypt what was not yet. Then `reveal` and `require` know it."""
        encoder = self._encoder
        for text in self._unread(settings):
            if encoder is not None:
                self._remember(text, await self._workers.run(lambda: encoder.decode(text)))  # noqa: B023 awaited at once

    def _unread(self, settings: Mapping[str, str]) -> list[str]:
        if self._encoder is None:
            return []

        return [
            value
            for name, value in settings.items()
            if value not in self._known and _is_secret(name) and is_encoded(value)
        ]

    def _remember(self, text: str, decoded: DecodedPassword | None) -> None:
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[text] = decoded

    def reveal(
        self, settings: Mapping[str, str], in_force: Mapping[str, str] = _NOTHING
    ) -> Mapping[str, str]:
        """Settings as they were set. What cannot be decrypted is left out, and told; what was not
        `read` yet is as it is in force: nobody is sent away while a new password is decrypted."""
        unread, revealed = set(self._unread(settings)), {}
        for name, value in settings.items():
            if value in unread and _is_secret(name):
                if name in in_force:
                    revealed[name] = in_force[name]
                continue
            try:
                revealed[name] = self._reveal(name, value)
            except ValueError as fault:
                _security_log.error("the dynamic setting %s is not used: it %s", name, fault)
        return revealed

    def require(self, settings: Mapping[str, str]) -> Mapping[str, str]:
        """The same, before they are stored and after they were `protect`ed. Raises
        InvalidConfigError for what cannot be read."""
        revealed = {}
        for name, value in settings.items():
            try:
                revealed[name] = self._reveal(name, value)
                if name.endswith(_JAAS):
                    parse_jaas(revealed[name])
            except ValueError as fault:
                raise InvalidConfigError(f"{name} {fault}") from None
        return revealed

    def _reveal(self, name: str, value: str) -> str:
        if not _is_secret(name):
            return value

        if not is_encoded(value):
            return value
        if self._encoder is None:
            raise ValueError("is encrypted, and password.encoder.secret is not set")
        known = self._known.get(value)
        if known is None:
            raise ValueError("was encrypted with another password.encoder.secret")
        return known.password


def _is_secret(name: str) -> bool:
    declared = BrokerOptions.find_declaration(name) or find_listener_declaration(name)
    return declared is not None and declared.is_sensitive


_Settings = Mapping[str, str]


class DynamicBrokerConfig:
    """Of one broker, and of all."""

    def __init__(
        self,
        current: CurrentBrokerOptions,
        secrets: StoredPasswords,
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
