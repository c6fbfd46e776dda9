"""Passwords that are set while the broker runs: what stands in the store, and what is in force."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Mapping

import pytest

from moldau.broker.dynamic_config import DynamicBrokerConfig, StoredPasswords
from moldau.config.broker_options import BrokerOptions, CurrentBrokerOptions
from moldau.errors import InvalidConfigError
from moldau.security.password_encoder import is_encoded
from moldau.tasks import TaskSupervisor
from moldau.workers import InlineWorkers, ThreadWorkers

JAAS = "listener.name.outside.plain.sasl.jaas.config"
USERS = 'x.PlainLoginModule required user_alice="hers";'
SETTINGS = {JAAS: USERS, "ssl.key.password": "hunter2", "num.io.threads": "3"}


def secrets(**settings: str) -> StoredPasswords:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return StoredPasswords(BrokerOptions.resolve(named), InlineWorkers())


def protect(one: StoredPasswords, settings: Mapping[str, str]) -> Mapping[str, str]:
    return asyncio.run(one.protect(settings))


def test_secrets_are_stored_encrypted_and_come_back() -> None:
    one = secrets(password_encoder_secret="s")
    stored = protect(one, SETTINGS)
    assert stored["num.io.threads"] == "3"
    assert is_encoded(stored[JAAS])
    assert is_encoded(stored["ssl.key.password"])
    assert protect(one, stored) == stored  # another setting was changed
    assert one.reveal(stored) == one.require(stored) == SETTINGS


def test_without_a_secret_it_is_said_that_they_are_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert protect(secrets(), SETTINGS) == SETTINGS
    assert [line.split()[0] for line in caplog.messages] == [JAAS, "ssl.key.password"]
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("settings", [{}, {"password_encoder_secret": "another"}])
def test_what_cannot_be_decrypted_is_left_out_and_told(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    stored = protect(secrets(password_encoder_secret="s"), SETTINGS)
    other = secrets(**settings)
    asyncio.run(other.read(stored))
    assert other.reveal(stored) == {"num.io.threads": "3"}
    assert "password.encoder.secret" in caplog.text
    with pytest.raises(InvalidConfigError, match=r"password\.encoder\.secret"):
        other.require(stored)


def test_users_that_cannot_be_read_are_not_stored() -> None:
    with pytest.raises(InvalidConfigError, match="does not end with a semicolon") as refused:
        secrets().require({JAAS: 'x required user_alice="hers"'})
    assert "hers" not in str(refused.value)


def test_what_the_former_secret_has_encrypted_is_encrypted_anew() -> None:
    stored = protect(secrets(password_encoder_secret="old"), SETTINGS)
    both = secrets(password_encoder_secret="new", password_encoder_old_secret="old")
    again = protect(both, stored)
    assert again != stored
    assert both.reveal(again) == SETTINGS
    assert protect(both, again) == again, "once"
    new = secrets(password_encoder_secret="new")
    asyncio.run(new.read(again))
    assert new.reveal(again) == SETTINGS


def test_the_loop_does_no_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of iterations, others go on."""
    derived_in: set[threading.Thread] = set()
    derive = hashlib.pbkdf2_hmac

    def note(*arguments: object) -> bytes:
        derived_in.add(threading.current_thread())
        return derive(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", note)
    workers = ThreadWorkers(1)
    options = BrokerOptions.resolve({"password.encoder.secret": "s"})

    async def story() -> None:
        stored = await StoredPasswords(options, workers).protect(SETTINGS)
        assert derived_in
        other = StoredPasswords(options, workers)
        assert not other.is_read(stored)
        await other.read(stored)
        assert other.reveal(stored) == other.require(stored) == SETTINGS

    try:
        asyncio.run(story())
    finally:
        workers.close()
    assert threading.current_thread() not in derived_in


class _Held(InlineWorkers):
    """Work begins when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_run = asyncio.Event()

    async def run(self, work):  # type: ignore[no-untyped-def]
        await self.may_run.wait()
        return await super().run(work)


def test_what_is_no_secret_does_not_wait_for_what_is() -> None:
    stored = protect(secrets(password_encoder_secret="s"), {**SETTINGS, "num.io.threads": "5"})

    async def story() -> None:
        static = {"password.encoder.secret": "s"}
        current, workers, applied = CurrentBrokerOptions(static), _Held(), []
        supervisor = TaskSupervisor(lambda name, error: pytest.fail(f"{name}: {error!r}"))
        dynamic = DynamicBrokerConfig(
            current,
            StoredPasswords(current.options, workers),
            supervisor,
            lambda: applied.append(current.options.num_io_threads),
        )
        dynamic.follow(stored, {})
        assert current.options.num_io_threads == 5
        assert current.options.ssl_key_password is None
        dynamic.follow({**stored, "num.io.threads": "6"}, {})  # meanwhile
        workers.may_run.set()
        await dynamic.wait_until_read()
        assert current.options.ssl_key_password == "hunter2"
        assert applied == [5, 6, 6]
        dynamic.follow({**stored, "num.io.threads": "7"}, {})
        assert current.options.ssl_key_password == "hunter2", "it is known by now"
        assert applied == [5, 6, 6, 7]
        await supervisor.close()

    asyncio.run(story())


def test_a_password_is_in_force_until_its_successor_is_decrypted() -> None:
    """Otherwise everybody who logs in meanwhile is sent away, and Java's clients do not return."""
    one = secrets(password_encoder_secret="s")
    stored, next_ones = (protect(one, {"ssl.key.password": text}) for text in ("old", "new"))

    async def story() -> None:
        current, workers = CurrentBrokerOptions({"password.encoder.secret": "s"}), _Held()
        supervisor = TaskSupervisor(lambda name, error: pytest.fail(f"{name}: {error!r}"))
        known = StoredPasswords(current.options, workers)
        dynamic = DynamicBrokerConfig(current, known, supervisor, lambda: None)
        workers.may_run.set()
        dynamic.follow(stored, {})
        await dynamic.wait_until_read()
        workers.may_run.clear()
        dynamic.follow(next_ones, {})
        assert current.options.ssl_key_password == "old"
        workers.may_run.set()
        await dynamic.wait_until_read()
        assert current.options.ssl_key_password == "new"
        workers.may_run.clear()
        dynamic.follow({}, {})
        assert not current.options.ssl_key_password, "what is taken out goes at once"
        await supervisor.close()

    asyncio.run(story())
