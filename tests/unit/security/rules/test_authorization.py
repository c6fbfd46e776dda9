"""Who may do what: stories of single rules, and everything against a naive model of Kafka's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model import (
    ANYBODY,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    Acls,
    PatternType,
    Principal,
    ResourcePattern,
)
from moldau.security.rules.authorization import (
    AccessPolicy,
    AclIndex,
    Asked,
    is_allowed,
    is_allowed_somewhere,
)

ALICE = Principal("User", "alice")
BOB = Principal("User", "bob")
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
OPEN = AccessPolicy(allows_without_acls=True)
CLOSED = AccessPolicy()


def entry(
    operation: AclOperation = READ,
    permission: AclPermission = ALLOW,
    principal: object = ALICE,
    host: str = "*",
) -> AclEntry:
    return AclEntry(str(principal), permission, operation, host)


def acls(*rows: tuple[str, PatternType, AclEntry]) -> Acls:
    found: dict[ResourcePattern, frozenset[AclEntry]] = {}
    for name, pattern_type, one in rows:
        pattern = ResourcePattern(TOPIC, name, pattern_type)
        found[pattern] = found.get(pattern, frozenset()) | {one}
    return found


def may(
    lists: Acls,
    operation: AclOperation = READ,
    name: str = "orders.eu",
    *,
    principal: Principal = ALICE,
    host: str = "10.0.0.1",
    policy: AccessPolicy = CLOSED,
) -> bool:
    asked = Asked(principal, host, operation, TOPIC, name)
    return is_allowed(asked, AclIndex(lists), policy)


@pytest.mark.parametrize(
    ("name", "pattern_type", "holds"),
    [
        ("orders.eu", LITERAL, True),
        ("orders.", LITERAL, False),
        ("*", LITERAL, True),
        ("orders.", PREFIXED, True),
        ("orders.eu", PREFIXED, True),
        ("orders.eu.", PREFIXED, False),
        ("rders", PREFIXED, False),
        ("*", PREFIXED, False),
    ],
)
def test_a_pattern_holds_literally_for_everything_or_by_its_prefix(
    name: str, pattern_type: PatternType, holds: bool
) -> None:
    assert may(acls((name, pattern_type, entry()))) is holds


def test_patterns_are_about_their_own_type() -> None:
    lists = acls(("*", LITERAL, entry()))
    asked = Asked(ALICE, "h", READ, GROUP, "orders.eu")
    assert not is_allowed(asked, AclIndex(lists), CLOSED)


def test_one_that_forbids_outweighs_all_that_allow() -> None:
    allowed = (("*", LITERAL, entry()), ("orders.", PREFIXED, entry()))
    for name, pattern_type in (("orders.eu", LITERAL), ("orders", PREFIXED), ("*", LITERAL)):
        for denial in (entry(READ, DENY), entry(ALL, DENY), entry(READ, DENY, ANYBODY)):
            assert not may(acls(*allowed, (name, pattern_type, denial)))
    assert may(acls(*allowed, ("orders.eu", LITERAL, entry(WRITE, DENY))))


def test_an_entry_is_about_its_principal_and_its_host() -> None:
    lists = acls(("orders.eu", LITERAL, entry(host="10.0.0.1")))
    assert may(lists)
    assert not may(lists, host="10.0.0.2")
    assert not may(lists, principal=BOB)
    assert may(acls(("orders.eu", LITERAL, entry(principal=ANYBODY))), principal=BOB)
    only_bobs = acls(("orders.eu", LITERAL, entry(READ, DENY, BOB)), ("*", LITERAL, entry()))
    assert may(only_bobs)


@pytest.mark.parametrize(
    ("written", "host", "is_meant"),
    [
        ("2001:db8:0:0:0:0:0:1", "2001:db8::1", True),
        ("2001:DB8::1", "2001:db8::1", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::2", False),
        ("2001:db8::1", "10.0.0.1", False),
        ("no:address", "10.0.0.1", False),
    ],
)
def test_an_address_of_ipv6_is_the_same_in_all_its_forms(
    written: str, host: str, is_meant: bool
) -> None:
    lists = acls(
        ("orders.eu", LITERAL, entry()), ("orders.eu", LITERAL, entry(ALL, DENY, host=written))
    )
    assert may(lists, host=host) is not is_meant


@pytest.mark.parametrize(
    ("granted", "implied"),
    [
        (READ, DESCRIBE),
        (WRITE, DESCRIBE),
        (AclOperation.DELETE, DESCRIBE),
        (AclOperation.ALTER, DESCRIBE),
        (AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS),
        (ALL, AclOperation.CREATE),
        (ALL, DESCRIBE),
    ],
)
def test_some_operations_are_granted_with_others(
    granted: AclOperation, implied: AclOperation
) -> None:
    lists = acls(("orders.eu", LITERAL, entry(granted)))
    assert may(lists, implied)
    if granted is not ALL:
        assert not may(acls(("orders.eu", LITERAL, entry(implied))), granted)


def test_what_forbids_an_operation_does_not_forbid_what_it_would_imply() -> None:
    lists = acls(("orders.eu", LITERAL, entry(READ, DENY)), ("orders.eu", LITERAL, entry(DESCRIBE)))
    assert may(lists, DESCRIBE)
    assert not may(lists, READ)


def test_create_and_describe_configs_imply_no_describe() -> None:
    for granted in (AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS):
        assert not may(acls(("orders.eu", LITERAL, entry(granted))), DESCRIBE)


def test_without_any_entry_the_policy_decides() -> None:
    assert not may({})
    assert may({}, policy=OPEN)
    others = acls(("orders.eu", LITERAL, entry(WRITE, ALLOW, BOB)))
    assert not may(others, policy=OPEN), "there is a list about it, and alice is not in it"
    assert may(others, name="clicks", policy=OPEN)


def test_a_super_user_may_do_what_is_forbidden() -> None:
    lists = acls(("*", LITERAL, entry(ALL, DENY, ANYBODY)))
    policy = AccessPolicy(super_users=frozenset({ALICE}))
    assert may(lists, policy=policy)
    assert not may(lists, principal=BOB, policy=policy)


def somewhere(lists: Acls, policy: AccessPolicy = CLOSED) -> bool:
    return is_allowed_somewhere(Asked(ALICE, "h", WRITE, TOPIC, ""), AclIndex(lists), policy)


def test_who_may_write_anywhere_may_have_a_producer_id() -> None:
    write, deny = entry(WRITE), entry(WRITE, DENY)
    assert not somewhere({})
    assert somewhere({}, OPEN)
    assert somewhere(acls(("clicks", LITERAL, write)))
    assert not somewhere(acls(("clicks", LITERAL, entry(READ))))
    assert not somewhere(acls(("clicks", LITERAL, write), ("clicks", LITERAL, deny)))
    assert not somewhere(acls(("clicks", LITERAL, write), ("cl", PREFIXED, deny)))
    assert somewhere(acls(("cl", PREFIXED, write), ("clicks", LITERAL, deny)))
    assert not somewhere(acls(("cl", PREFIXED, write), ("c", PREFIXED, deny)))
    assert somewhere(acls(("*", LITERAL, write), ("c", PREFIXED, deny)))
    assert not somewhere(acls(("*", LITERAL, write), ("*", LITERAL, deny)))
    assert not somewhere(acls(("*", LITERAL, deny)), OPEN)
    assert somewhere(acls(("*", LITERAL, write), ("*", PREFIXED, deny)))
    assert not somewhere(acls(("*", PREFIXED, write), ("*", PREFIXED, deny)))


# Against a model that looks at every entry, in Kafka's own order of questions

NAMES = st.text("ab.", min_size=1, max_size=4)
PRINCIPALS = st.sampled_from((ALICE, BOB))
HOSTS = st.sampled_from(("h1", "h2"))
OPERATIONS = st.sampled_from(tuple(AclOperation)[2:])
ENTRIES = st.builds(
    AclEntry,
    st.sampled_from((str(ALICE), str(BOB), ANYBODY)),
    st.sampled_from((ALLOW, DENY)),
    OPERATIONS,
    st.sampled_from(("h1", "h2", "*")),
)
PATTERNS = st.builds(
    ResourcePattern,
    st.sampled_from((TOPIC, GROUP)),
    NAMES | st.just("*"),
    st.sampled_from((LITERAL, PREFIXED)),
)
LISTS = st.dictionaries(PATTERNS, st.frozensets(ENTRIES, min_size=1, max_size=4), max_size=6)
POLICIES = st.builds(AccessPolicy, st.frozensets(PRINCIPALS, max_size=1), st.booleans())


def kafka_says(asked: Asked, lists: Acls, policy: AccessPolicy) -> bool:
    if asked.principal in policy.super_users:
        return True
    about = [
        one
        for pattern, entries in lists.items()
        if pattern.type is asked.resource_type
        and (
            asked.name.startswith(pattern.name)
            if pattern.pattern_type is PREFIXED
            else pattern.name in ("*", asked.name)
        )
        for one in entries
    ]
    if not about:
        return policy.allows_without_acls

    def exists(permission: AclPermission, operation: AclOperation) -> bool:
        return any(
            one.permission is permission
            and one.principal in (str(asked.principal), ANYBODY)
            and one.host in (asked.host, "*")
            and one.operation in (operation, ALL)
            for one in about
        )

    if exists(DENY, asked.operation):
        return False
    if asked.operation is DESCRIBE:
        granting = (DESCRIBE, READ, WRITE, AclOperation.DELETE, AclOperation.ALTER)
    elif asked.operation is AclOperation.DESCRIBE_CONFIGS:
        granting = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
    else:
        granting = (asked.operation,)
    return any(exists(ALLOW, one) for one in granting)


@given(
    asked=st.builds(Asked, PRINCIPALS, HOSTS, OPERATIONS, st.sampled_from((TOPIC, GROUP)), NAMES),
    lists=LISTS,
    policy=POLICIES,
)
def test_decisions_are_those_of_kafka(asked: Asked, lists: Acls, policy: AccessPolicy) -> None:
    assert is_allowed(asked, AclIndex(lists), policy) is kafka_says(asked, lists, policy)


@given(lists=LISTS, name=NAMES, host=HOSTS)
def test_who_may_write_to_a_topic_may_write_somewhere(lists: Acls, name: str, host: str) -> None:
    asked = Asked(ALICE, host, WRITE, TOPIC, name)
    index = AclIndex(lists)
    if is_allowed(asked, index, CLOSED):
        assert is_allowed_somewhere(asked, index, CLOSED)


def test_a_super_user_is_matched_by_kind_and_name() -> None:
    policy = AccessPolicy(super_users=frozenset({ALICE}))
    for principal, expected in ((ALICE, True), (Principal("Group", "alice"), False)):
        asked = Asked(principal, "h", READ, TOPIC, "clicks")
        assert is_allowed(asked, AclIndex({}), policy) is expected
        assert is_allowed_somewhere(asked, AclIndex({}), policy) is expected
