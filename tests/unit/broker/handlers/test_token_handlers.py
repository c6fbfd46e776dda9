"""Requests about delegation tokens: who may make, see, renew and end which, and who none at all."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kio.index import load_request_schema

from broker.handlers.handler_bench import WITH_AUTHORIZER, HandlerBench, with_broker
from moldau.broker.api import RequestContext
from moldau.broker.authentication import SaslSession
from moldau.broker.handlers import (
    create_acls,
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from moldau.errors import ErrorCode
from moldau.model import AclOperation, AclPermission, AclResourceType, PatternType
from moldau.security.audit import AUDIT_LOGGER
from moldau.wire.headers import RequestHeader
from moldau.wire.shape import fit

SETTINGS = {**WITH_AUTHORIZER, "delegation_token_secret_key": "key"}
USUAL = timedelta(milliseconds=-1)
HOUR = timedelta(hours=1)


def secured(bench: HandlerBench, user: str) -> HandlerBench:
    client = bench.as_user(user)
    client.connection.security_protocol = "SASL_SSL"
    return client


async def create(
    bench: HandlerBench, owner: str | None = None, renewers: tuple[str, ...] = ()
) -> Any:
    return await bench.call(
        create_delegation_token,
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[{"principal_type": "User", "principal_name": one} for one in renewers],
        max_lifetime=USUAL,
    )


async def seen_by(bench: HandlerBench) -> list[str]:
    answer = await bench.call(describe_delegation_token, owners=None)
    assert answer.error_code is ErrorCode.none
    return [one.token_id for one in answer.tokens]


async def allow(bench: HandlerBench, user: str, operation: AclOperation, of: str) -> None:
    row = {
        "resource_type": AclResourceType.USER,
        "resource_name": of,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": f"User:{user}",
        "host": "*",
        "operation": operation,
        "permission_type": AclPermission.ALLOW,
    }
    answer = await bench.call(create_acls, creations=[row])
    assert [one.error_code for one in answer.results] == [ErrorCode.none]


def test_a_token_is_its_owners_and_its_renewers_business() -> None:
    async def story(bench: HandlerBench) -> None:
        alice, bob, mallory = (secured(bench, one) for one in ("alice", "bob", "mallory"))
        token = await create(alice, renewers=("bob",))
        assert token.error_code is ErrorCode.none
        assert await seen_by(alice) == await seen_by(bob) == [token.token_id]
        assert await seen_by(mallory) == []
        for handler, period in (
            (renew_delegation_token, {"renew_period": HOUR}),
            (expire_delegation_token, {"expiry_time_period": HOUR}),
        ):
            for client, code in (
                (mallory, ErrorCode.delegation_token_owner_mismatch),
                (bob, ErrorCode.none),
            ):
                answer = await client.call(handler, hmac=token.hmac, **period)
                assert answer.error_code is code
        await alice.call(expire_delegation_token, hmac=token.hmac, expiry_time_period=USUAL)
        assert await seen_by(alice) == []

    with_broker(story, **SETTINGS)


def test_tokens_of_others_need_an_entry() -> None:
    async def story(bench: HandlerBench) -> None:
        bob, carol = secured(bench, "bob"), secured(bench, "carol")
        refused = await create(bob, owner="alice")
        assert refused.error_code is ErrorCode.delegation_token_authorization_failed
        assert (refused.token_id, refused.hmac) == ("", b"")
        await allow(bench, "bob", AclOperation.CREATE_TOKENS, "User:alice")
        token = await create(bob, owner="alice")
        assert token.error_code is ErrorCode.none
        assert await seen_by(carol) == []
        await allow(bench, "carol", AclOperation.DESCRIBE_TOKENS, "User:alice")
        assert await seen_by(carol) == [token.token_id]

    with_broker(story, **SETTINGS)


@pytest.mark.parametrize(
    ("protocol", "is_by_token"),
    [("PLAINTEXT", False), ("SASL_SSL", True), ("SASL_PLAINTEXT", True)],
)
def test_strangers_and_those_with_a_token_are_refused(protocol: str, is_by_token: bool) -> None:
    async def story(bench: HandlerBench) -> None:
        token = await create(secured(bench, "alice"))
        client = secured(bench, "alice")
        client.connection.security_protocol = protocol
        sasl = cast(SaslSession, SimpleNamespace(is_by_token=is_by_token))
        requests: tuple[tuple[Any, dict[str, object]], ...] = (
            (
                create_delegation_token,
                {
                    "owner_principal_type": None,
                    "owner_principal_name": None,
                    "renewers": [],
                    "max_lifetime": USUAL,
                },
            ),
            (renew_delegation_token, {"hmac": token.hmac, "renew_period": HOUR}),
            (expire_delegation_token, {"hmac": token.hmac, "expiry_time_period": USUAL}),
            (describe_delegation_token, {"owners": None}),
        )
        for handler, values in requests:
            key, version = handler.API.key, handler.API.last
            request = fit(load_request_schema(key, version), values)
            header = RequestHeader(key, version, 9, "test")
            context = RequestContext(header, client.connection, client.services, sasl=sasl)
            answer = await client.call_as(handler, version, request, context)
            assert answer.error_code is ErrorCode.delegation_token_request_not_allowed
        assert await seen_by(secured(bench, "alice")) == [token.token_id]

    with_broker(story, **SETTINGS)


def test_the_audit_log_names_the_token_and_never_its_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secrets: list[bytes] = []

    async def story(bench: HandlerBench) -> None:
        alice = secured(bench, "alice")
        token = await create(alice)
        secrets.append(token.hmac)
        await alice.call(renew_delegation_token, hmac=token.hmac, renew_period=HOUR)
        await alice.call(expire_delegation_token, hmac=token.hmac, expiry_time_period=USUAL)
        told = [
            one.getMessage() for one in caplog.records if "DelegationToken:" in one.getMessage()
        ]
        assert [token.token_id in line for line in told] == [True, True]

    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        with_broker(story, **SETTINGS)
    (secret,) = secrets
    assert not any(part in caplog.text for part in (secret.hex(), str(secret)))
