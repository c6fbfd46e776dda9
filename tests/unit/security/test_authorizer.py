"""Decisions are kept while the lists are the same, and no more of them than there is room for."""

from __future__ import annotations

from moldau.model import (
    NO_ACLS,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    Acls,
    Principal,
    ResourcePattern,
)
from moldau.security.authorizer import LONGEST_NAME, MOST_DECISIONS, Authorizer
from moldau.security.rules.authorization import AccessPolicy

ALICE = Principal("User", "alice")
TOPIC = AclResourceType.TOPIC
READ, WRITE = AclOperation.READ, AclOperation.WRITE
CLICKS: Acls = {
    ResourcePattern(TOPIC, "clicks"): frozenset({AclEntry("User:alice", AclPermission.ALLOW, READ)})
}


class Store:
    acls: Acls = NO_ACLS


def make() -> tuple[Store, Authorizer]:
    store = Store()
    return store, Authorizer(lambda: store.acls, AccessPolicy())


def test_a_decision_lasts_until_the_lists_change() -> None:
    store, authorizer = make()
    assert not authorizer.allows(ALICE, "h", READ, TOPIC, "clicks")
    version = authorizer.version
    store.acls = CLICKS
    assert authorizer.version == version + 1
    assert authorizer.allows(ALICE, "h", READ, TOPIC, "clicks")
    assert authorizer.version == version + 1
    store.acls = NO_ACLS
    assert not authorizer.allows(ALICE, "h", READ, TOPIC, "clicks")


def test_decisions_about_one_and_about_all_are_not_mixed_up() -> None:
    store, authorizer = make()
    store.acls = CLICKS
    assert authorizer.allows_somewhere(ALICE, "h", READ, TOPIC)
    assert not authorizer.allows(ALICE, "h", READ, TOPIC, "")
    assert not authorizer.allows_somewhere(ALICE, "h", WRITE, TOPIC)


def test_made_up_names_do_not_fill_the_memory() -> None:
    _, authorizer = make()
    for number in range(MOST_DECISIONS + 10):
        authorizer.allows(ALICE, "h", READ, TOPIC, f"t{number}")
    assert 0 < len(authorizer._decisions) <= MOST_DECISIONS
    kept = len(authorizer._decisions)
    assert not authorizer.allows(ALICE, "h", READ, TOPIC, "t" * (LONGEST_NAME + 1))
    assert len(authorizer._decisions) == kept
