"""Changes that are asked for while the store's server of a broker has not heard of the last one.

ZooKeeper may answer a read from an older state. A change that would change nothing there is not
confirmed for that: it is made, if the present state needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest

from cluster.stage import RULES
from moldau.cluster import entity_znodes
from moldau.cluster.acl_writer import AclWriter
from moldau.cluster.broker_registration import ensure_znodes
from moldau.cluster.config_writer import ClientMetricsConfigs, ConfigWriter
from moldau.cluster.credentials import UserCredentials
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.model import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from moldau.security.rules.scram import HASHES, make_credential
from moldau.simulation.coordination_service import (
    CoordinationService,
    SimulatedSession,
    open_session,
)
from moldau.simulation.manual_clock import ManualClock, wait_until_idle
from moldau.simulation.memory_network import MemoryNetwork

CLICKS = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "clicks"),
    AclEntry("User:alice", AclPermission.ALLOW, AclOperation.READ),
)
MECHANISM = next(iter(HASHES))


class Broker(NamedTuple):
    session: SimulatedSession
    publisher: MetadataPublisher
    acls: AclWriter
    configs: ConfigWriter
    users: UserCredentials
    metrics: ClientMetricsConfigs


class Stage:
    """Two brokers, each at another server of the store."""

    def __init__(self, cleanup: AsyncExitStack) -> None:
        self._cleanup = cleanup
        self.clock = ManualClock()
        network = MemoryNetwork(self.clock)
        self.service = CoordinationService(network, self.clock, draw_lag=lambda: 0.0)

    async def join(self, host: str) -> Broker:
        opening = open_session(self.service, host=host, clock=self.clock, timeout_seconds=6.0)
        session = await self._cleanup.enter_async_context(opening)
        await ensure_znodes(session, more_paths=entity_znodes.ACL_PATHS)
        publisher = MetadataPublisher(session, self.clock, "c", follows_acls=True)
        await publisher.start()
        self._cleanup.push_async_callback(publisher.stop)
        return Broker(
            session,
            publisher,
            AclWriter(session, publisher),
            ConfigWriter(session, publisher, RULES, lambda _: RULES, RULES),
            UserCredentials(session),
            ClientMetricsConfigs(session, lambda _, reading: asyncio.ensure_future(reading)),
        )


def play(story: Callable[[Stage, Broker, Broker], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with AsyncExitStack() as cleanup:
            stage = Stage(cleanup)
            await story(stage, await stage.join("one"), await stage.join("other"))

    asyncio.run(asyncio.wait_for(run(), 30))


async def changed_by_both(
    stage: Stage, first: Coroutine[Any, Any, object], then: Coroutine[Any, Any, object]
) -> None:
    """`first` is confirmed before `then`, and the other broker's server hears of it later."""
    await wait_until_idle()
    service = stage.service
    (number,) = (n for n in range(service.server_count) if "other" in service.hosts_at(n))
    service.cut_off(number)
    await first
    second = asyncio.ensure_future(then)
    await wait_until_idle()
    service.rejoin(number)
    await second
    await wait_until_idle()


@pytest.mark.parametrize("is_added_last", [True, False])
def test_an_access_list_is_what_was_confirmed_last(is_added_last: bool) -> None:
    async def story(stage: Stage, one: Broker, other: Broker) -> None:
        if is_added_last:
            await one.acls.add([CLICKS])
            await changed_by_both(stage, one.acls.remove([CLICKS]), other.acls.add([CLICKS]))
        else:
            await changed_by_both(stage, one.acls.add([CLICKS]), other.acls.remove([CLICKS]))
        for broker in (one, other):
            assert broker.acls.find(AclFilter()) == [CLICKS] * is_added_last

    play(story)


def test_bindings_to_be_removed_are_found_though_another_broker_added_them_just_now() -> None:
    async def story(stage: Stage, one: Broker, other: Broker) -> None:
        await changed_by_both(stage, one.acls.add([CLICKS]), other.acls.catch_up())
        assert other.acls.find(AclFilter()) == [CLICKS]

    play(story)


def test_a_config_is_what_was_confirmed_last() -> None:
    async def story(stage: Stage, one: Broker, other: Broker) -> None:
        await one.configs.alter_broker(None, {"a": "1"}, False)
        await changed_by_both(
            stage,
            one.configs.alter_broker(None, {"a": "2"}, False),
            other.configs.alter_broker(None, {"a": "1"}, False),
        )
        assert one.publisher.image.broker_config(None) == {"a": "1"}

    play(story)


def test_a_credential_that_was_removed_last_is_gone() -> None:
    async def story(stage: Stage, one: Broker, other: Broker) -> None:
        credential = make_credential(MECHANISM, b"secret", b"salt", 4096)
        await changed_by_both(
            stage,
            one.users.change("alice", {MECHANISM: credential}),
            other.users.change("alice", {MECHANISM: None}),
        )
        assert await one.users.find(MECHANISM, "alice") is None

    play(story)


def test_a_subscription_to_metrics_that_was_removed_last_is_gone() -> None:
    async def story(stage: Stage, one: Broker, other: Broker) -> None:
        await changed_by_both(
            stage,
            one.metrics.alter("all", {"interval.ms": "1000"}, validate_only=False),
            other.metrics.alter("all", {}, validate_only=False),
        )
        await one.metrics.read()
        assert not one.metrics.settings

    play(story)
