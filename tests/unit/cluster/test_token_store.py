"""Delegation tokens: stored in the classic way, found by whoever proves them, gone when expired."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.credentials import TOKENS, DelegationTokens, decode_token, encode_token
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.embedded import MEMORY, EmbeddedSession, EmbeddedStore
from moldau.errors import (
    DelegationTokenAuthDisabledError,
    DelegationTokenNotFoundError,
    InvalidRequestError,
    MalformedNodeError,
)
from moldau.model import Principal
from moldau.security.rules.delegation_tokens import DelegationToken, token_password
from moldau.simulation.manual_clock import ManualClock
from moldau.workers import InlineWorkers

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
KEY = {"delegation.token.secret.key": "key"}
ID = UUID(int=7)


class Stage:
    def __init__(self, session: EmbeddedSession, clock: ManualClock, settings: dict[str, str]):
        self.session, self.clock = session, clock
        options = BrokerOptions.resolve(settings)
        self.tokens = DelegationTokens(session, clock, lambda: options, lambda: ID)


Story = Callable[[Stage], Coroutine[None, None, None]]


def perform(story: Story, settings: dict[str, str] = KEY) -> None:
    async def play() -> None:
        clock = ManualClock()
        store = await EmbeddedStore.open(MEMORY, clock=clock, workers=InlineWorkers())
        session = store.session()
        try:
            await asyncio.wait_for(story(Stage(session, clock, settings)), 30)
        finally:
            await session.close()
            await store.close()

    asyncio.run(play())


def test_a_token_is_kept_as_kafka_keeps_it_and_without_its_secret() -> None:
    async def story(stage: Stage) -> None:
        token = await stage.tokens.create(ALICE, BOB, (BOB,), 1_000)
        node = await stage.session.get(f"{TOKENS}/{token.token_id}")
        assert node is not None
        assert json.loads(node.data) == {
            "version": 3,
            "owner": "User%3Aalice",
            "tokenRequester": "User%3Abob",
            "renewers": ["User%3Abob"],
            "issueTimestamp": token.issue_ms,
            "maxTimestamp": token.issue_ms + 1_000,
            "expiryTimestamp": token.issue_ms + 1_000,
            "tokenId": token.token_id,
        }
        assert await stage.tokens.list_tokens() == [token]

    perform(story)


def test_a_login_finds_a_token_while_it_is_good() -> None:
    async def story(stage: Stage) -> None:
        token = await stage.tokens.create(ALICE, ALICE, (), 1_000)
        found = await stage.tokens.find(token.token_id)
        assert found == (token, token_password("key", token.token_id))
        for name in ("other", "", "..", "../tokens", "x" * 5_000):
            assert await stage.tokens.find(name) is None
        await stage.clock.advance(1.001)
        assert await stage.tokens.find(token.token_id) is None

    perform(story)


def test_a_token_under_the_name_of_another_lets_nobody_in() -> None:
    """The password follows from the name: it would prove a token that nobody was given."""

    async def story(stage: Stage) -> None:
        token = await stage.tokens.create(ALICE, ALICE, (), 1_000)
        await stage.session.create(f"{TOKENS}/other", encode_token(token))
        assert await stage.tokens.find("other") is None
        assert await stage.tokens.find(token.token_id) is not None

    perform(story)


def test_renewed_and_expired_by_its_secret() -> None:
    async def story(stage: Stage) -> None:
        token = await stage.tokens.create(ALICE, ALICE, (BOB,), 5_000)
        secret = stage.tokens.hmac_of(token)
        renewed = await stage.tokens.renew(secret, BOB, 3_000)
        assert (
            (await stage.tokens.list_tokens())[0].expiry_ms
            == renewed.expiry_ms
            == token.issue_ms + 3000
        )
        for call in (stage.tokens.renew, stage.tokens.expire):
            with pytest.raises(DelegationTokenNotFoundError):
                await call(b"guess", ALICE, 1)
        for period_ms, left_ms in ((10, 10), (-1, 0)):
            ended = await stage.tokens.expire(secret, ALICE, period_ms)
            assert ended == (token.token_id, token.issue_ms + left_ms)
        assert await stage.tokens.list_tokens() == []

    perform(story)


def test_the_controller_removes_what_has_expired_and_nobody_else_does() -> None:
    async def story(stage: Stage) -> None:
        is_controller = False
        task = asyncio.create_task(stage.tokens.run(lambda: is_controller))
        await stage.tokens.create(ALICE, ALICE, (), 1_000)
        await stage.clock.advance(10)
        assert len(await stage.tokens.list_tokens()) == 1
        is_controller = True
        await stage.clock.advance(5)
        assert await stage.tokens.list_tokens() == []
        await stage.tokens.create(ALICE, ALICE, (), 60_000)
        await stage.clock.advance(10)
        assert len(await stage.tokens.list_tokens()) == 1, "it is good for a minute"
        task.cancel()

    perform(story, {**KEY, "delegation.token.expiry.check.interval.ms": "5000"})


def test_a_node_that_is_no_token_does_not_harm_the_others() -> None:
    async def story(stage: Stage) -> None:
        await stage.session.create(f"{TOKENS}/broken", b"{}", parents=True)
        token = await stage.tokens.create(ALICE, ALICE, (), 1_000)
        assert await stage.tokens.find("broken") is None
        assert await stage.tokens.list_tokens() == [token]
        await stage.tokens.renew(stage.tokens.hmac_of(token), ALICE, 500)
        await stage.clock.advance(2)
        await stage.tokens.remove_expired()
        assert await stage.tokens.list_tokens() == []

    perform(story)


def test_a_token_is_not_larger_than_the_store_can_take() -> None:
    async def story(stage: Stage) -> None:
        renewers = tuple(Principal("User", f"{number:0100}") for number in range(1_000))
        with pytest.raises(InvalidRequestError):
            await stage.tokens.create(ALICE, ALICE, renewers, 1_000)
        assert await stage.tokens.list_tokens() == []

    perform(story)


def test_without_a_key_there_are_none() -> None:
    async def story(stage: Stage) -> None:
        assert not stage.tokens.is_enabled
        assert await stage.tokens.find("id") is None
        with pytest.raises(DelegationTokenAuthDisabledError):
            await stage.tokens.create(ALICE, ALICE, (), -1)
        with pytest.raises(DelegationTokenAuthDisabledError):
            await stage.tokens.renew(b"x", ALICE, -1)

    perform(story, {})


def test_the_former_name_of_the_key_counts() -> None:
    async def story(stage: Stage) -> None:
        assert stage.tokens.is_enabled

    perform(story, {"delegation.token.master.key": "key"})


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(names=st.lists(_NAMES, min_size=2, max_size=4), times=st.lists(st.integers(0), min_size=3))
def test_what_is_written_is_read(names: list[str], times: list[int]) -> None:
    first, second, *others = (Principal("User", name) for name in names)
    token = DelegationToken(
        token_id="id",
        owner=first,
        requester=second,
        renewers=tuple(others),
        issue_ms=times[0],
        expiry_ms=times[1],
        max_ms=times[2],
    )
    assert decode_token("/x", encode_token(token)) == token


def test_a_token_of_an_older_kafka_was_asked_for_by_its_owner() -> None:
    old = {"version": 1, "owner": "User%3Aalice", "renewers": [], "issueTimestamp": 1}
    old |= {"maxTimestamp": 3, "expiryTimestamp": 2, "tokenId": "id"}
    assert decode_token("/x", json.dumps(old).encode()).requester == ALICE


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"owner": 5}', b"null"])
def test_what_is_no_token_is_told(data: bytes) -> None:
    with pytest.raises(MalformedNodeError):
        decode_token("/x", data)
