"""The words of access control lists: spellings, patterns, filters."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model import (
    ANONYMOUS,
    OPERATIONS,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    Principal,
    ResourcePattern,
    format_uuid,
    operation_bits,
    parse_uuid,
)

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
ENTRY = AclEntry("User:alice", AclPermission.ALLOW, AclOperation.READ)


@pytest.mark.parametrize("text", ["DESCRIBE_CONFIGS", "DescribeConfigs", "describe-configs"])
def test_a_word_is_read_in_every_spelling(text: str) -> None:
    assert AclOperation.parse(text) is AclOperation.DESCRIBE_CONFIGS
    assert AclOperation.DESCRIBE_CONFIGS.label == "DescribeConfigs"


def test_a_word_that_is_none_says_which_there_are() -> None:
    with pytest.raises(ValueError, match="'lead' is none of All, Read, Write"):
        AclOperation.parse("lead")


def test_numbers_of_newer_clients_are_unknown() -> None:
    assert AclOperation(99) is AclOperation.UNKNOWN
    assert AclResourceType(-3) is AclResourceType.UNKNOWN
    assert PatternType(9) is PatternType.UNKNOWN
    assert AclPermission(9) is AclPermission.UNKNOWN


@pytest.mark.parametrize(
    ("wanted", "means"),
    [
        (AclFilter(), (True, True, True)),
        (AclFilter(TOPIC), (True, True, True)),
        (AclFilter(GROUP), (False, False, False)),
        (AclFilter(TOPIC, "orders", PatternType.LITERAL), (True, False, False)),
        (AclFilter(TOPIC, "orders", PatternType.ANY), (True, False, False)),
        (AclFilter(TOPIC, "orders", PatternType.MATCH), (True, True, True)),
        (AclFilter(TOPIC, "o", PatternType.MATCH), (False, False, True)),
        (AclFilter(TOPIC, "ord", PatternType.PREFIXED), (False, True, False)),
        (AclFilter(TOPIC, None, PatternType.PREFIXED), (False, True, False)),
        (AclFilter(TOPIC, "*", PatternType.LITERAL), (False, False, True)),
    ],
)
def test_a_filter_means_patterns(wanted: AclFilter, means: tuple[bool, bool, bool]) -> None:
    patterns = (
        ResourcePattern(TOPIC, "orders"),
        ResourcePattern(TOPIC, "ord", PatternType.PREFIXED),
        ResourcePattern(TOPIC, "*"),
    )
    assert tuple(wanted.matches_pattern(one) for one in patterns) == means


@pytest.mark.parametrize(
    ("wanted", "means"),
    [
        (AclFilter(principal="User:alice", host="*"), True),
        (AclFilter(principal="User:bob"), False),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=AclOperation.READ, permission=AclPermission.ALLOW), True),
        (AclFilter(operation=AclOperation.ALL), False),
        (AclFilter(permission=AclPermission.DENY), False),
    ],
)
def test_a_filter_means_entries(wanted: AclFilter, means: bool) -> None:
    assert wanted.matches_entry(ENTRY) is means


def test_a_binding_reads_as_it_is_meant() -> None:
    pattern = ResourcePattern(TOPIC, "ord", PatternType.PREFIXED)
    assert str(AclBinding(pattern, ENTRY)) == (
        "Allow User:alice from * to Read Topic:ord (Prefixed)"
    )


def test_bits_are_those_that_kafka_answers_without_an_authorizer() -> None:
    assert operation_bits(OPERATIONS[TOPIC]) == 3576
    assert operation_bits(OPERATIONS[GROUP]) == 3400
    assert operation_bits(OPERATIONS[AclResourceType.CLUSTER]) == 8096


def test_text_of_a_principal_is_kind_and_name():
    assert str(Principal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_a_name_may_contain_colons():
    assert Principal.parse("User:CN=a:b") == Principal("User", "CN=a:b")


@pytest.mark.parametrize("text", ["alice", ":alice", ""])
def test_a_text_without_a_kind_is_refused(text):
    with pytest.raises(ValueError, match="is not of the form User:name"):
        Principal.parse(text)


@given(st.uuids())
def test_an_id_survives_being_written(identifier: UUID) -> None:
    text = format_uuid(identifier)
    assert len(text) == 22
    assert parse_uuid(text) == identifier


def test_ids_look_as_kafka_writes_them() -> None:
    # From a broker's /cluster/id.
    assert format_uuid(parse_uuid("HApw8pLOT3-qhrqtyo5oFQ")) == "HApw8pLOT3-qhrqtyo5oFQ"
    assert format_uuid(UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert format_uuid(UUID(int=2**128 - 1)) == "_____________________w"


@pytest.mark.parametrize(
    "text", ["", "short", "x" * 23, "!" * 22, "AAAAAAAAAAAAAAAAAAAAAB", "AAAA AAAAAAAAAAAAAAAAA"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a base64 id"):
        parse_uuid(text)
