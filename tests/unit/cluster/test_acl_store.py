"""Access control lists: stored in the classic way, seen by every broker, and not lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster import entity_znodes
from moldau.cluster.acl_writer import AclWriter
from moldau.cluster.broker_registration import ensure_znodes
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.coordination.embedded import MEMORY, EmbeddedSession, EmbeddedStore
from moldau.errors import MalformedNodeError
from moldau.model import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from moldau.simulation.manual_clock import ManualClock, wait_until_idle
from moldau.workers import InlineWorkers

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
CLICKS = ResourcePattern(TOPIC, "clicks")
ORDERS = ResourcePattern(TOPIC, "orders.", PatternType.PREFIXED)
READ = AclEntry("User:alice", AclPermission.ALLOW, AclOperation.READ)
NO_WRITE = AclEntry("User:bob", AclPermission.DENY, AclOperation.WRITE, "10.0.0.1")
STRANGE = ("a/b", ".", "..", "*", "für alle", "100%", "%2F", "\x00", "a b", "x:y")


class Broker:
    """What one broker knows of the lists."""

    def __init__(self, session: EmbeddedSession, clock: ManualClock) -> None:
        self.session = session
        self.publisher = MetadataPublisher(session, clock, "c", follows_acls=True)
        self.writer = AclWriter(session, self.publisher)

    def known(self) -> dict[ResourcePattern, frozenset[AclEntry]]:
        return dict(self.publisher.image.acls)


class _Stage:
    def __init__(self, store: EmbeddedStore, clock: ManualClock) -> None:
        self._store, self.clock = store, clock
        self.brokers: list[Broker] = []

    async def join(self) -> Broker:
        session = self._store.session()
        await ensure_znodes(session, more_paths=entity_znodes.ACL_PATHS)
        broker = Broker(session, self.clock)
        await broker.publisher.start()
        self.brokers.append(broker)
        return broker


@asynccontextmanager
async def _stage() -> AsyncIterator[_Stage]:
    clock = ManualClock()
    store = await EmbeddedStore.open(MEMORY, clock=clock, workers=InlineWorkers())
    stage = _Stage(store, clock)
    try:
        yield stage
    finally:
        for broker in stage.brokers:
            await broker.publisher.stop()
            await broker.session.close()
        await store.close()


def play(story: Callable[[_Stage], Coroutine[Any, Any, None]]) -> None:
    import asyncio

    async def run() -> None:
        async with _stage() as stage:
            await asyncio.wait_for(story(stage), 30)

    asyncio.run(run())


def test_lists_are_stored_as_kafka_stores_them_and_seen_by_others() -> None:
    async def story(stage: _Stage) -> None:
        first, other = await stage.join(), await stage.join()
        outcome = await first.writer.add([AclBinding(CLICKS, READ), AclBinding(CLICKS, NO_WRITE)])
        assert set(outcome.values()) == {None}
        node = await first.session.get("/kafka-acl/Topic/clicks")
        assert node is not None
        assert json.loads(node.data) == {
            "version": 1,
            "acls": [
                {
                    "principal": "User:alice",
                    "permissionType": "Allow",
                    "operation": "Read",
                    "host": "*",
                },
                {
                    "principal": "User:bob",
                    "permissionType": "Deny",
                    "operation": "Write",
                    "host": "10.0.0.1",
                },
            ],
        }
        told = await first.session.get("/kafka-acl-changes/acl_changes_0000000000")
        assert told is not None
        assert told.data == b"Topic:clicks"
        await other.writer.add([AclBinding(ORDERS, READ)])
        assert await first.session.get("/kafka-acl-extended/prefixed/Topic/orders.") is not None
        told = await first.session.get("/kafka-acl-extended-changes/acl_changes_0000000000")
        assert told is not None
        assert json.loads(told.data) == {
            "version": 1,
            "resourceType": "TOPIC",
            "name": "orders.",
            "patternType": "PREFIXED",
        }
        await wait_until_idle()
        wanted = {CLICKS: frozenset({READ, NO_WRITE}), ORDERS: frozenset({READ})}
        assert first.known() == other.known() == wanted
        late = await stage.join()
        assert late.known() == wanted

    play(story)


def test_what_is_removed_is_gone_everywhere_and_leaves_no_node() -> None:
    async def story(stage: _Stage) -> None:
        first, other = await stage.join(), await stage.join()
        await first.writer.add([AclBinding(CLICKS, READ), AclBinding(CLICKS, NO_WRITE)])
        await wait_until_idle()
        found = other.writer.find(AclFilter(principal="User:alice"))
        assert found == [AclBinding(CLICKS, READ)]
        await other.writer.remove(found)
        await wait_until_idle()
        assert first.known() == {CLICKS: frozenset({NO_WRITE})}
        await first.writer.remove([AclBinding(CLICKS, NO_WRITE)])
        await wait_until_idle()
        assert other.known() == {}
        assert await first.session.get("/kafka-acl/Topic/clicks") is None
        await other.writer.remove([AclBinding(CLICKS, NO_WRITE)])  # nothing is left to be done

    play(story)


def test_writers_on_several_brokers_do_not_lose_each_others_entries() -> None:
    async def story(stage: _Stage) -> None:
        import asyncio

        brokers = [await stage.join() for _ in range(3)]
        entries = [
            AclEntry(f"User:{number}", AclPermission.ALLOW, AclOperation.READ)
            for number in range(12)
        ]
        await asyncio.gather(
            *(
                brokers[number % 3].writer.add([AclBinding(CLICKS, one)])
                for number, one in enumerate(entries)
            )
        )
        await wait_until_idle()
        for broker in brokers:
            assert broker.known() == {CLICKS: frozenset(entries)}

    play(story)


def test_any_text_is_the_name_of_a_resource() -> None:
    async def story(stage: _Stage) -> None:
        first, other = await stage.join(), await stage.join()
        patterns = {
            ResourcePattern(GROUP, name, of) for name in STRANGE for of in entity_znodes.STORES
        }
        await first.writer.add([AclBinding(pattern, READ) for pattern in patterns])
        await wait_until_idle()
        wanted = dict.fromkeys(patterns, frozenset({READ}))
        assert other.known() == wanted
        assert (await stage.join()).known() == wanted

    play(story)


def test_a_damaged_list_forbids_everything_until_it_is_removed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(stage: _Stage) -> None:
        first = await stage.join()
        await first.writer.add([AclBinding(CLICKS, READ)])
        await first.session.set("/kafka-acl/Topic/clicks", b"nonsense")
        await first.publisher.read_again()
        assert first.known() == {CLICKS: entity_znodes.DAMAGED}
        await first.writer.remove(first.writer.find(AclFilter(TOPIC, "clicks")))
        assert first.known() == {}
        assert await first.session.get("/kafka-acl/Topic/clicks") is None

    play(story)
    assert "/kafka-acl/Topic/clicks" in caplog.text


def test_a_broker_that_missed_notifications_reads_everything() -> None:
    async def story(stage: _Stage) -> None:
        first, other = await stage.join(), await stage.join()
        other.publisher.hold()
        for number in range(3):
            await first.writer.add([AclBinding(CLICKS._replace(name=f"t{number}"), READ)])
        await wait_until_idle()
        for name in (await first.session.children(entity_znodes.LITERAL_CHANGES))[:-1]:
            await first.session.delete(f"{entity_znodes.LITERAL_CHANGES}/{name}")
        assert other.known() == {}
        other.publisher._is_held = False
        other.publisher._maybe_refresh()
        await wait_until_idle()
        assert len(other.known()) == 3

    play(story)


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'{"acls": 1}',
        b'{"acls": [{}]}',
        b'{"acls": [{"principal": "User:a", "permissionType": "Any", "operation": "Read", '
        b'"host": "*"}]}',
        b'{"acls": [{"principal": "User:a", "permissionType": "Allow", "operation": "Lead", '
        b'"host": "*"}]}',
        b'{"acls": [{"principal": 7, "permissionType": "Allow", "operation": "Read", '
        b'"host": "*"}]}',
        b"\xff",
    ],
)
def test_an_unreadable_list_is_one_that_forbids(data: bytes) -> None:
    assert entity_znodes.decode_acls("/kafka-acl/Topic/x", data) == entity_znodes.DAMAGED
    assert entity_znodes.decode_acls("/kafka-acl/Topic/x", b"") == frozenset()


@pytest.mark.parametrize("data", [b"Topic", b"Lead:x", b"Topic:", b"\xff\xfe"])
def test_a_notification_that_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedNodeError):
        entity_znodes.decode_literal_change("/p", data)
    with pytest.raises(MalformedNodeError):
        entity_znodes.decode_extended_change("/p", data)


ENTRIES = st.builds(
    AclEntry,
    st.text(min_size=1).map("User:".__add__),
    st.sampled_from(AclPermission.choices()),
    st.sampled_from(AclOperation.choices()),
    st.text(min_size=1),
)


@given(entries=st.frozensets(ENTRIES, max_size=4))
def test_entries_survive_the_way_through_the_store(entries: frozenset[AclEntry]) -> None:
    assert entity_znodes.decode_acls("/p", entity_znodes.encode_acls(entries)) == entries


@given(name=st.text(min_size=1), of=st.sampled_from(list(entity_znodes.STORES)))
def test_names_survive_the_way_through_the_store(name: str, of: PatternType) -> None:
    pattern = ResourcePattern(GROUP, name, of)
    node_name = entity_znodes.acl_path(pattern).removeprefix(f"{entity_znodes.STORES[of]}/Group/")
    assert "/" not in node_name
    assert entity_znodes.read_pattern(GROUP, node_name, of) == pattern
    prefix, data = entity_znodes.encode_acl_change(pattern)
    literal = prefix.startswith(f"{entity_znodes.LITERAL_CHANGES}/")
    decode = (
        entity_znodes.decode_literal_change if literal else entity_znodes.decode_extended_change
    )
    assert decode("/p", data) == pattern
