"""Members, and what they have in common."""

from __future__ import annotations

import pytest

from moldau.coordinators.groups.rules.classic_group import Member, Members
from moldau.coordinators.groups.rules.events import GroupProtocol
from moldau.coordinators.groups.rules.records import StoredMember
from moldau.errors import InvariantViolation


def member(
    member_id: str, *protocols: str, instance_id: str | None = None, rebalance_ms: int = 1_000
) -> Member:
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=100,
        rebalance_timeout_ms=rebalance_ms,
        protocols=tuple(GroupProtocol(name, name.encode()) for name in protocols),
    )


def members(*all_of_them: Member) -> Members:
    made = Members()
    for one in all_of_them:
        made.add(one)
    return made


def test_the_protocol_that_most_like_best_is_chosen_among_the_common_ones() -> None:
    group = members(
        member("a", "sticky", "range", "own"),
        member("b", "sticky", "range"),
        member("c", "other", "range", "sticky"),
    )
    assert group.select_protocol() == "sticky"


def test_a_protocol_that_only_some_speak_is_not_chosen() -> None:
    group = members(member("a", "new", "range"), member("b", "new", "range"), member("c", "range"))
    assert group.select_protocol() == "range"


def test_a_newcomer_has_to_speak_what_all_speak() -> None:
    group = members(member("a", "range", "sticky"), member("b", "sticky"))
    assert group.supports_any(["range", "sticky"])
    assert not group.supports_any(["range"])
    assert members().supports_any(["anything"])


def test_the_slowest_member_decides_how_long_a_rebalance_may_take() -> None:
    group = members(member("a", "r", rebalance_ms=5), member("b", "r", rebalance_ms=9))
    assert group.rebalance_timeout_ms == 9
    assert members().rebalance_timeout_ms == 0


def test_an_instance_id_belongs_to_one_member() -> None:
    group = members(member("a", "r", instance_id="one"))
    with pytest.raises(InvariantViolation):
        group.add(member("b", "r", instance_id="one"))
    group.remove("a")
    group.add(member("b", "r", instance_id="one"))
    found = group.find_static("one")
    assert found is not None
    assert found.member_id == "b"


def test_a_renamed_member_keeps_its_place() -> None:
    group = members(member("a", "r", instance_id="one"), member("b", "r"))
    found = group.find_static("one")
    assert found is not None
    group.rename(found, "c")
    assert [one.member_id for one in group] == ["c", "b"]
    assert "a" not in group
    assert group.find_static("one") is group.find("c")


def test_a_generation_that_is_loaded_brings_its_members() -> None:
    stored = StoredMember(
        member_id="a",
        instance_id="one",
        client_id="client",
        client_host="/h",
        rebalance_timeout_ms=1,
        session_timeout_ms=2,
        subscription=b"said",
        assignment=b"got",
    )
    here = member("b", "range", "sticky")
    group = members(here, member("gone", "range"))

    group.become((stored, here.to_store("range", b"more")), "range")

    assert [one.member_id for one in group] == ["a", "b"]
    loaded = group.find("a")
    assert loaded is not None
    assert loaded.protocols == (GroupProtocol("range", b"said"),)
    assert loaded.to_store("range", b"got") == stored
    assert (here.assignment, len(here.protocols)) == (b"more", 2)
