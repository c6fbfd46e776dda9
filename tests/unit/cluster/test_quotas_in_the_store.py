"""Quotas: stored in the classic way, seen by every broker, and not lost."""

from __future__ import annotations

import json

import pytest

from cluster.stage import Stage, play
from moldau.cluster import entity_znodes, znodes
from moldau.quotas import DEFAULT, QuotaEntity
from moldau.simulation.manual_clock import wait_until_idle

PRODUCE, FETCH, PERCENT = "producer_byte_rate", "consumer_byte_rate", "request_percentage"

PATHS = {
    QuotaEntity("alice"): "users/alice",
    QuotaEntity("alice", "app"): "users/alice/clients/app",
    QuotaEntity(DEFAULT, "app"): "users/<default>/clients/app",
    QuotaEntity("alice", DEFAULT): "users/alice/clients/<default>",
    QuotaEntity(DEFAULT): "users/<default>",
    QuotaEntity(None, "app"): "clients/app",
    QuotaEntity(None, DEFAULT): "clients/<default>",
    QuotaEntity(ip="10.0.0.1"): "ips/10.0.0.1",
    QuotaEntity(ip="::1"): "ips/::1",
    QuotaEntity(ip=DEFAULT): "ips/<default>",
    # As Kafka's Sanitizer writes them
    QuotaEntity("CN=a b,O=*~"): "users/CN%3Da%20b%2CO%3D%2A%7E",
    QuotaEntity("<default>"): "users/%3Cdefault%3E",
    QuotaEntity(None, "a/b+c"): "clients/a%2Fb%2Bc",
    QuotaEntity("für"): "users/f%C3%BCr",
    QuotaEntity(user=".."): "users/%2E%2E",  # which would name no node
}


@pytest.mark.parametrize("entity", PATHS, ids=str)
def test_an_entity_has_its_classic_path(entity: QuotaEntity) -> None:
    assert entity_znodes.quota_entity_path(entity) == PATHS[entity]
    assert entity_znodes.find_quota_entity(PATHS[entity]) == entity


@pytest.mark.parametrize("path", ["users", "users/a/clients", "topics/a", "users//clients/b", ""])
def test_other_paths_are_no_entities(path: str) -> None:
    assert entity_znodes.find_quota_entity(path) is None


def test_quotas_are_stored_announced_and_seen_by_others() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        other = await stage.join(2)
        entity = QuotaEntity("alice", "app")
        set_now = await other.admin.alter_quotas(entity, {PRODUCE: 1024.0, PERCENT: 12.5})
        assert set_now == {PRODUCE: 1024.0, PERCENT: 12.5}
        assert other.image.quotas == {entity: set_now}
        await wait_until_idle()
        assert first.image.quotas == {entity: set_now}
        node = await first.session.get("/config/users/alice/clients/app")
        assert node is not None
        config = {"producer_byte_rate": "1024", "request_percentage": "12.5"}
        assert json.loads(node.data) == {"version": 1, "config": config}
        names = await first.session.children(znodes.CONFIG_CHANGES)
        told = await first.session.get(f"{znodes.CONFIG_CHANGES}/{names[-1]}")
        assert told is not None
        path = "users/alice/clients/app"
        assert json.loads(told.data) == {"version": 2, "entity_path": path}
        await first.admin.alter_quotas(entity, {PRODUCE: None, FETCH: 7.0})
        await wait_until_idle()
        assert other.image.quotas == {entity: {PERCENT: 12.5, FETCH: 7.0}}
        await first.admin.alter_quotas(entity, {PERCENT: None, FETCH: None})
        await wait_until_idle()
        assert not other.image.quotas

    play(story)


def test_who_comes_late_reads_them_all() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        wanted = {}
        for number, entity in enumerate(PATHS, 1):
            name = PRODUCE if entity.ip is None else "connection_creation_rate"
            wanted[entity] = await first.admin.alter_quotas(entity, {name: float(number)})
        late = await stage.join(2)
        assert late.image.quotas == wanted
        await late.publisher.read_again()
        assert late.image.quotas == wanted

    play(story)


def test_what_else_the_node_of_a_user_holds_stays() -> None:
    """Its credentials, of which this knows nothing."""

    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.session.create(
            "/config/users/alice", znodes.encode_config({"SCRAM-SHA-256": "salt=x"})
        )
        await broker.admin.alter_quotas(QuotaEntity("alice"), {PRODUCE: 5.0})
        await broker.admin.alter_quotas(QuotaEntity("alice"), {PRODUCE: None})
        node = await broker.session.get("/config/users/alice")
        assert node is not None
        assert json.loads(node.data)["config"] == {"SCRAM-SHA-256": "salt=x"}
        assert not broker.image.quotas

    play(story)


def test_a_damaged_node_keeps_the_last_good_quotas_and_a_change_mends_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        entity = QuotaEntity("alice")
        await broker.admin.alter_quotas(entity, {PRODUCE: 5.0})
        damage = znodes.encode_config({PRODUCE: "many"})
        await broker.session.set("/config/users/alice", damage)
        await broker.publisher.read_again()
        assert broker.image.quotas == {entity: {PRODUCE: 5.0}}
        assert "quotas of user 'alice' cannot be read" in caplog.text
        await broker.admin.alter_quotas(entity, {FETCH: 6.0})
        other = await stage.join(2)
        assert other.image.quotas == {entity: {PRODUCE: 5.0, FETCH: 6.0}}

    play(story)
