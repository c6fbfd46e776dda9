"""`moldau acls`: which bindings a command line means."""

from __future__ import annotations

import pytest
import typer

from moldau.cli.acls import (
    binding_document,
    filter_of,
    plan_bindings,
    read_operations,
    read_pattern_type,
    read_resources,
)
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

NOBODY: tuple[tuple[str, ...], tuple[str, ...]] = ((), ("*",))
ALICE = (("User:alice",), ("*",))
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP


def resources(*topics: str, groups: tuple[str, ...] = (), cluster: bool = False) -> dict:  # type: ignore[type-arg]
    return read_resources(topics, groups, None, None, None, cluster=cluster)


def plan(found: dict, *operations: str, **more: bool) -> list[AclBinding]:  # type: ignore[type-arg]
    return plan_bindings(
        found, PatternType.LITERAL, operations, allowed=ALICE, denied=NOBODY, **more
    )


def told(bindings: list[AclBinding]) -> set[tuple[str, str]]:
    return {(str(one.pattern), one.entry.operation.label) for one in bindings}


def test_every_principal_host_operation_and_resource_makes_a_binding() -> None:
    found = plan_bindings(
        resources("a", "b"),
        PatternType.PREFIXED,
        ("read", "describe-configs"),
        allowed=(("User:alice", "User:bob"), ("*",)),
        denied=(("User:eve",), ("10.0.0.1", "10.0.0.2")),
    )
    assert len(found) == 2 * 2 * (2 + 2)
    assert found[0] == AclBinding(
        ResourcePattern(TOPIC, "a", PatternType.PREFIXED),
        AclEntry("User:alice", AclPermission.ALLOW, AclOperation.READ, "*"),
    )


def test_without_an_operation_it_is_everything() -> None:
    assert told(plan(resources("a"))) == {("Topic:a", "All")}


def test_producers_and_consumers_get_what_they_need() -> None:
    assert told(plan(resources("a"), producer=True)) == {
        ("Topic:a", "Write"),
        ("Topic:a", "Describe"),
        ("Topic:a", "Create"),
    }
    assert told(plan(resources("a"), producer=True, idempotent=True)) >= {
        ("Cluster:kafka-cluster", "IdempotentWrite")
    }
    assert told(plan(resources("a", groups=("g",)), consumer=True)) == {
        ("Topic:a", "Read"),
        ("Topic:a", "Describe"),
        ("Group:g", "Read"),
    }


@pytest.mark.parametrize(
    ("found", "operations", "more", "said"),
    [
        ({}, (), {}, "name a resource"),
        (resources("a"), ("lead",), {}, "'lead' is none of"),
        (resources("a"), ("cluster-action",), {}, "ClusterAction is nothing that is done to a"),
        (resources("a"), (), {"consumer": True}, "--consumer needs a --group"),
        (resources(groups=("g",)), (), {"producer": True}, "need a --topic"),
        (resources("a"), ("read",), {"producer": True}, "give no others"),
    ],
)
def test_what_makes_no_sense_is_refused(
    found: dict,  # type: ignore[type-arg]
    operations: tuple[str, ...],
    more: dict[str, bool],
    said: str,
) -> None:
    with pytest.raises(typer.BadParameter, match=said):
        plan(found, *operations, **more)


def test_a_principal_has_a_kind() -> None:
    with pytest.raises(typer.BadParameter, match="'alice' is not of the form"):
        plan_bindings(
            resources("a"), PatternType.LITERAL, (), allowed=(("alice",), ("*",)), denied=NOBODY
        )


def test_pattern_types_that_only_find_are_not_for_adding() -> None:
    assert read_pattern_type("match", is_filter=True, default="any") is PatternType.MATCH
    assert read_pattern_type(None, is_filter=False, default="literal") is PatternType.LITERAL
    with pytest.raises(typer.BadParameter, match="for looking"):
        read_pattern_type("match", is_filter=False, default="literal")
    with pytest.raises(typer.BadParameter, match="name the operations"):
        read_operations(("any",))


def test_a_filter_means_the_binding_alone() -> None:
    (binding,) = plan(resources("a"), "read")
    wanted = filter_of(binding)
    assert wanted == AclFilter(
        TOPIC,
        "a",
        PatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )
    assert binding_document(binding)["resource_type"] == "Topic"
