"""The login of one connection: how long it is good, and what is known when the client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

from moldau.broker.sasl_session import RefusedLogins, SaslSession
from moldau.config.listener_options import ListenerOptions
from moldau.config.resolve import Layers
from moldau.errors import ErrorCode
from moldau.model import ANONYMOUS
from moldau.net.newcomers import Newcomers
from moldau.net.port import Connection
from moldau.security.rules.bearer import format_bearer
from moldau.security.rules.plain import format_plain
from moldau.security.rules.sasl_states import FrameVerdict
from moldau.security.rules.scram import ScramCredential
from moldau.security.sasl_server import SaslMechanisms, Token
from moldau.testing.manual_clock import ManualClock
from moldau.workers import InlineWorkers

HANDSHAKE, METADATA = 17, 3
LIFETIME_MS = 60_000


class _Clock(ManualClock):
    """Stands still until it is set forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class _Connection:
    """What a session needs of one."""

    principal = ANONYMOUS
    peer_host = "10.0.0.1"

    def limit_requests(self, max_bytes: int | None) -> None:
        pass

    def close(self, reason: str) -> None:
        pass


class _Login:
    """A session with the settings of a listener."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.clock = _Clock()
        self.connection = _Connection()
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
        mechanisms = SaslMechanisms(
            options,
            find_credential=self._find,
            check_token=self._check,
            workers=InlineWorkers(),
        )
        self.session = SaslSession(
            cast(Connection, self.connection),
            lambda: mechanisms,
            lambda: options,
            self.clock,
            Newcomers(self.clock, "login"),
            RefusedLogins(self.clock),
        )

    async def _find(self, mechanism: str, user: str) -> ScramCredential | None:
        return None

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
