"""Which entities DescribeClientQuotas asks for.

A filter has one condition for each entity type that it names: this name, the default, or any of the
two. An entity matches when it has all of these types with matching names; of a strict filter, when
it has no others besides. A filter without conditions matches everything, and nothing if it is
strict. A rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from moldau.errors import InvalidRequestError, UnsupportedVersionError
from moldau.quotas.rules.entities import DEFAULT, ENTITY_TYPES, IP, QuotaEntity, Quotas


class Match(IntEnum):
    """How a name is compared; the numbers of the protocol."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class NameCondition(NamedTuple):
    """What a filter says about one entity type."""

    entity_type: str
    match_type: int
    match: str | None


def find_matching(
    quotas: Quotas, conditions: Sequence[NameCondition], *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """The entities that match and have quotas."""
    _check(conditions)
    return {
        entity: dict(limits)
        for entity, limits in quotas.items()
        if limits and _matches(entity, conditions, strict)
    }


def _matches(entity: QuotaEntity, conditions: Sequence[NameCondition], strict: bool) -> bool:
    parts = entity.parts
    if strict and len(parts) != len(conditions):
        return False
    for kind, match_type, name in conditions:
        if kind not in parts:
            return False
        if match_type == Match.EXACT and parts[kind] != name:
            return False
        if match_type == Match.DEFAULT and parts[kind] is not DEFAULT:
            return False
    return True


def _check(conditions: Sequence[NameCondition]) -> None:
    named: set[str] = set()
    for kind, match_type, name in conditions:
        if not kind:
            raise InvalidRequestError("a condition names no entity type")
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersionError(f"there are no quotas of the entity type {kind!r}")
        if kind in named:
            raise InvalidRequestError(f"the filter has two conditions on {kind}")
        named.add(kind)
        if match_type not in (Match.EXACT, Match.DEFAULT, Match.ANY):
            raise InvalidRequestError(f"there is no way {match_type} to match a name")
        if (match_type == Match.EXACT) != (name is not None):
            raise InvalidRequestError(
                f"the condition on {kind} has a name that it does not match by, or none to match"
            )
    if IP in named and len(named) > 1:
        raise InvalidRequestError("no quota is of an address and of a user or client id")
