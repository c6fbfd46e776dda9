"""The login of one connection: how long it is good, and what is known when the client has gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import cast
from uuid import uuid4

import pytest

from moldau.broker.authentication import RefusedClients, SaslGate, SaslSession
from moldau.broker.dispatch import RequestPump
from moldau.cluster.credentials import DelegationTokens
from moldau.config.broker_options import BrokerOptions
from moldau.config.listener_options import ListenerOptions
from moldau.config.option import Layers
from moldau.coordination.embedded import MEMORY, EmbeddedStore
from moldau.coordination.port import StoreLostError
from moldau.errors import ErrorCode, MalformedNodeError, SaslAuthenticationError
from moldau.model import ANONYMOUS, Principal
from moldau.net.connection_quotas import PendingConnections
from moldau.net.port import Connection
from moldau.security.audit import AUDIT_LOGGER, AuditLog
from moldau.security.rules.delegation_tokens import DelegationToken, token_password
from moldau.security.rules.sasl import FrameVerdict, SaslState, format_bearer, format_plain
from moldau.security.rules.scram import ScramClient, ScramCredential
from moldau.security.sasl_server import SaslMechanisms, StoredLogins, Token
from moldau.simulation.manual_clock import ManualClock
from moldau.tasks import TaskSupervisor
from moldau.workers import InlineWorkers

HANDSHAKE, METADATA = 17, 3
LIFETIME_MS = 60_000
ALICE = Principal("User", "alice")


class _Clock(ManualClock):
    """Stands still until it is set forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class _Connection:
    """What a session needs of one."""

    id = "a:1-b:2-3"
    principal = ANONYMOUS
    peer_host = "10.0.0.1"

    def limit_requests(self, max_bytes: int | None) -> None:
        self.max_bytes = max_bytes

    close_reason = ""

    def close(self, reason: str) -> None:
        self.close_reason = self.close_reason or reason


class _Login:
    """A session with the settings of a listener."""

    store_fault: Exception | None = None  # when users are looked up
    tokens: DelegationTokens | None = None

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.clock = _Clock()
        options = ListenerOptions.of_listener(
            Layers(
                static={
                    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
                    "sasl.jaas.config": 'x.PlainLoginModule required user_alice="secret";',
                    **settings,
                }
            ),
            "OUTSIDE",
        )
        self._options = options
        self._mechanisms = SaslMechanisms(
            options,
            stored=StoredLogins(self._find, self._find_token),
            check_token=self._check,
            workers=InlineWorkers(),
        )
        self.connect()

    def connect(self) -> None:
        """Another connection to the same broker."""
        self.connection = _Connection()
        self.session = SaslSession(
            cast(Connection, self.connection),
            lambda: self._mechanisms,
            lambda: self._options,
            self.clock,
            PendingConnections(self.clock, "login"),
            RefusedClients(self.clock, AuditLog(self.clock)),
        )

    async def _find(self, mechanism: str, user: str) -> ScramCredential | None:
        if self.store_fault is not None:
            raise self.store_fault
        return None

    async def _find_token(self, token_id: str) -> tuple[DelegationToken, str] | None:
        return None if self.tokens is None else await self.tokens.find(token_id)

    async def _check(self, text: str) -> Token:
        return Token("alice", self.clock.now_ms() + LIFETIME_MS)

    async def log_in(self, mechanism: str) -> int:
        """How long it is good, as the client is told."""
        message = (
            format_bearer("t") if mechanism == "OAUTHBEARER" else format_plain("alice", "secret")
        )
        shaken = self.session.shake_hands(mechanism, 1)
        assert shaken["error_code"] is ErrorCode.none
        answer = await self.session.authenticate(message)
        assert answer["error_code"] is ErrorCode.none
        return cast(int, answer["session_lifetime"])


class _TokenLogin(_Login):
    """A broker with delegation tokens in its store, of which alice has one for a minute."""

    tokens: DelegationTokens
    token: DelegationToken

    async def hand_out(self, store: EmbeddedStore) -> None:
        options = BrokerOptions.resolve({"delegation.token.secret.key": "key"})
        self.tokens = DelegationTokens(store.session(), self.clock, lambda: options, uuid4)
        self.token = await self.tokens.create(ALICE, ALICE, (), LIFETIME_MS)
        self.secret = self.tokens.hmac_of(self.token)

    async def log_in_by_token(self) -> int:
        """How long it is good; a refusal is raised."""
        password = token_password("key", self.token.token_id)
        name = self.token.token_id
        client = ScramClient("SCRAM-SHA-256", name, password, "nonce", is_token=True)
        self.session.shake_hands("SCRAM-SHA-256", 1)
        first = await self.session.authenticate(client.first())
        if first["error_code"] is ErrorCode.none:
            final = client.final(cast(bytes, first["auth_bytes"]))
            first = await self.session.authenticate(final)
        if first["error_code"] is not ErrorCode.none:
            raise SaslAuthenticationError(cast(str, first["error_message"]))
        return cast(int, first["session_lifetime"])

    def is_served(self) -> bool:
        return self.session.judge(METADATA) is FrameVerdict.PASS


def with_token(
    story: Callable[[_TokenLogin], Coroutine[None, None, None]], **settings: str
) -> None:
    async def run() -> None:
        login = _TokenLogin(
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "sasl.jaas.config": "x.ScramLoginModule required;",
                "connection.failed.authentication.delay.ms": "0",
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )
        store = await EmbeddedStore.open(MEMORY, clock=login.clock, workers=InlineWorkers())
        async with contextlib.AsyncExitStack() as closing:
            closing.push_async_callback(store.close)
            await login.hand_out(store)
            await story(login)

    asyncio.run(run())


def test_a_session_ends_with_its_delegation_token_which_is_renewed_no_more() -> None:
    async def story(login: _TokenLogin) -> None:
        assert await login.log_in_by_token() == LIFETIME_MS
        assert login.session.is_by_token
        await login.clock.advance(59)
        login.connect()
        assert await login.log_in_by_token() == 1_000
        assert login.is_served()
        await login.clock.advance(1.001)
        assert not login.is_served()
        with pytest.raises(SaslAuthenticationError, match="Authentication failed"):
            await login.log_in_by_token()
        await asyncio.sleep(0)
        assert login.connection.close_reason == "the login failed"

    with_token(story)


def test_connections_max_reauth_ms_ends_a_session_before_its_delegation_token() -> None:
    async def story(login: _TokenLogin) -> None:
        assert await login.log_in_by_token() == 40_000
        await login.clock.advance(40)
        assert not login.is_served()
        assert await login.log_in_by_token() == 20_000, "the token ends then"
        assert login.is_served()
        await login.tokens.renew(login.secret, ALICE, LIFETIME_MS)
        assert await login.log_in_by_token() == 20_000, "it has no longer life than this"

    with_token(story, connections_max_reauth_ms="40000")


def test_a_token_that_was_renewed_is_good_for_longer_at_the_next_login() -> None:
    async def story(login: _TokenLogin) -> None:
        await login.tokens.expire(login.secret, ALICE, 10_000)
        assert await login.log_in_by_token() == 10_000
        await login.tokens.renew(login.secret, ALICE, 50_000)
        await login.clock.advance(9)
        assert await login.log_in_by_token() == 41_000
        await login.clock.advance(9)
        assert login.is_served(), "the former end does not count"

    with_token(story)


def test_a_token_that_was_removed_keeps_its_sessions_until_they_are_renewed() -> None:
    """ExpireDelegationToken with a negative period, as in Kafka."""

    async def story(login: _TokenLogin) -> None:
        assert await login.log_in_by_token() == LIFETIME_MS
        await login.tokens.expire(login.secret, ALICE, -1)
        await login.clock.advance(59)
        assert login.is_served()
        connected = login.session
        login.connect()
        with pytest.raises(SaslAuthenticationError, match="Authentication failed"):
            await login.log_in_by_token()
        login.session = connected
        with pytest.raises(SaslAuthenticationError, match="Authentication failed"):
            await login.log_in_by_token()
        assert login.session.state is SaslState.OVER

    with_token(story)


def test_a_token_that_ends_during_its_login_ends_the_session_at_once() -> None:
    async def story(login: _TokenLogin) -> None:
        find = login.tokens.find

        async def find_and_wait(token_id: str) -> tuple[DelegationToken, str] | None:
            found = await find(token_id)
            await login.clock.advance(LIFETIME_MS / 1000)
            return found

        login.tokens.find = find_and_wait  # type: ignore[method-assign]
        assert await login.log_in_by_token() == 1
        await login.clock.advance(0.001)
        assert not login.is_served()

    with_token(story)


def test_a_request_before_the_login_leaves_one_line_at_v(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        login = _Login({})
        gate = SaslGate(
            cast(Connection, login.connection),
            cast(RequestPump, None),
            login.session,
            cast(TaskSupervisor, None),
        )
        gate.on_frame(memoryview(METADATA.to_bytes(2, "big") + bytes(8)))
        assert login.connection.close_reason == "API 3 before, or without, a login"

    with caplog.at_level(logging.INFO, "moldau.broker.security"):
        asyncio.run(story())
    assert caplog.messages == [
        "closing connection a:1-b:2-3 of 10.0.0.1: API 3 before, or without, a login"
    ]


def test_refused_logins_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        login = _Login({"connection.failed.authentication.delay.ms": "0"})
        login.session.shake_hands("PLAIN", 1)
        answer = await login.session.authenticate(format_plain("alice", "guess"))
        assert answer["error_code"] is ErrorCode.sasl_authentication_failed
        other = _Login({})
        other.session.shake_hands("GSS\nAPI", 1)

    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        asyncio.run(story())
    told = [one.getMessage() for one in caplog.records if one.name == AUDIT_LOGGER]
    assert told == [
        "login refused: User:alice from 10.0.0.1 with PLAIN: Authentication failed during "
        "authentication due to invalid credentials with SASL mechanism PLAIN",
        r"login refused: unknown from 10.0.0.1 with GSS\nAPI: the mechanism is not enabled",
    ]
    assert "guess" not in caplog.text


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("fault", [StoreLostError("away"), MalformedNodeError("broken")])
def test_when_users_cannot_be_looked_up_the_connection_ends_and_nobody_is_to_blame(
    fault: Exception, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        login = _Login(
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "sasl.jaas.config": "x.ScramLoginModule required;",
                "connection.failed.authentication.delay.ms": "0",
            }
        )
        login.store_fault = fault
        login.session.shake_hands("SCRAM-SHA-256", version)
        message = b"n,,n=alice,r=nonce"
        if version:
            await login.session.authenticate(message)
        else:
            assert await login.session.answer_raw(message) is None
        reason = f"users cannot be looked up: {fault}"
        assert login.connection.close_reason == reason, "before there is an answer"

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    told = [one for one in caplog.records if one.name != AUDIT_LOGGER]
    assert len(told) == 1
    assert told[0].exc_info is None


def test_a_login_with_a_token_ends_with_it_and_can_be_renewed() -> None:
    """Without connections.max.reauth.ms, too: the client is told of the end, and renews."""

    async def story() -> None:
        login = _Login({})
        assert await login.log_in("OAUTHBEARER") == LIFETIME_MS
        assert login.session.judge(METADATA) is FrameVerdict.PASS
        assert await login.log_in("OAUTHBEARER") == LIFETIME_MS
        login.clock.ahead = LIFETIME_MS / 1000
        assert not login.session.is_unlimited
        assert login.session.judge(METADATA) is FrameVerdict.CLOSE

    asyncio.run(story())


def test_requests_are_limited_to_the_size_of_a_login_before_it() -> None:
    async def story() -> None:
        login = _Login({"sasl.server.max.receive.size": "1234"})
        assert login.connection.max_bytes == 1234
        await login.log_in("PLAIN")
        assert login.connection.max_bytes is None

    asyncio.run(story())


def test_a_login_with_a_password_is_good_for_ever_unless_it_is_limited() -> None:
    async def story() -> None:
        login = _Login({})
        assert await login.log_in("PLAIN") == 0
        assert login.session.is_unlimited

    asyncio.run(story())


def test_a_mechanism_of_a_listener_has_a_limit_of_its_own() -> None:
    async def story() -> None:
        login = _Login(
            {
                "connections.max.reauth.ms": "9000",
                "listener.name.outside.plain.connections.max.reauth.ms": "500",
            }
        )
        assert await login.log_in("PLAIN") == 500
        login.clock.ahead = 0.5
        assert login.session.judge(METADATA) is FrameVerdict.CLOSE
        assert login.session.judge(HANDSHAKE) is FrameVerdict.HANDSHAKE

    asyncio.run(story())


def test_who_it_was_stays_known_when_the_client_has_gone() -> None:
    """What it asked for last may still be done, and the audit log tells who wanted it."""

    async def story() -> None:
        login = _Login({})
        await login.log_in("PLAIN")
        login.session.forget()
        assert str(login.connection.principal) == "User:alice"
        assert login.session.judge(METADATA) is FrameVerdict.CLOSE

    asyncio.run(story())


TWO_USERS = 'x.PlainLoginModule required user_alice="secret" user_bob="his";'


def test_nobody_becomes_another_user_when_a_login_is_renewed() -> None:
    async def story() -> None:
        login = _Login(
            {
                "connections.max.reauth.ms": "9000",
                "connection.failed.authentication.delay.ms": "0",
                "sasl.jaas.config": TWO_USERS,
            }
        )
        await login.log_in("PLAIN")
        login.session.shake_hands("PLAIN", 1)
        answer = await login.session.authenticate(format_plain("bob", "his"))
        assert answer["error_code"] is ErrorCode.sasl_authentication_failed
        assert str(login.connection.principal) == "User:alice"
        assert login.session.judge(METADATA) is FrameVerdict.CLOSE
        await asyncio.sleep(0)
        assert login.connection.close_reason == "the login failed"

    asyncio.run(story())


def test_a_login_is_renewed_with_the_mechanism_of_the_first() -> None:
    async def story() -> None:
        login = _Login({"connections.max.reauth.ms": "9000"})
        await login.log_in("PLAIN")
        answer = login.session.shake_hands("OAUTHBEARER", 1)
        assert answer["error_code"] is ErrorCode.unsupported_sasl_mechanism
        assert login.session.judge(METADATA) is FrameVerdict.CLOSE

    asyncio.run(story())


def test_a_login_that_is_not_limited_is_not_renewed() -> None:
    """As in Kafka: the connection ends."""

    async def story() -> None:
        login = _Login({})
        await login.log_in("PLAIN")
        answer = login.session.shake_hands("PLAIN", 1)
        assert answer["error_code"] is ErrorCode.illegal_sasl_state
        await asyncio.sleep(0)
        assert login.connection.close_reason == "SaslHandshake at the wrong time"

    asyncio.run(story())


def test_a_session_that_has_ended_can_still_be_renewed() -> None:
    async def story() -> None:
        login = _Login({"connections.max.reauth.ms": "9000"})
        await login.log_in("PLAIN")
        login.clock.ahead = 10.0
        assert login.session.judge(METADATA) is FrameVerdict.CLOSE
        assert await login.log_in("PLAIN") == 9000
        assert login.session.judge(METADATA) is FrameVerdict.PASS

    asyncio.run(story())


@pytest.mark.parametrize("user", ["alice", "nobody"])
@pytest.mark.parametrize("version", [0, 1])
def test_a_refusal_is_slow_whatever_was_wrong(user: str, version: int) -> None:
    async def story() -> None:
        login = _Login({"connection.failed.authentication.delay.ms": "300"})
        login.session.shake_hands("PLAIN", version)
        message = format_plain(user, "guess")
        step = login.session.authenticate if version else login.session.answer_raw
        refused = asyncio.ensure_future(step(message))
        await login.clock.advance(0.29)
        assert not refused.done()
        assert not login.connection.close_reason
        await login.clock.advance(0.02)
        assert refused.done()

    asyncio.run(story())
