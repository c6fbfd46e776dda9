"""The features of the cluster that clients can ask for: their levels, and which one is in force.

`transaction.version` (KIP-890): 0 and 1 are told apart by the log of transactions only; under 2
the end of a transaction raises its producer's epoch, and leaders of partitions add them by
themselves. `group.version` (KIP-848): with 1, groups of the consumer protocol are served.
`share.version` (KIP-932): with 1, share groups are. `streams.version` (KIP-1071): with 1, streams
groups are. A rule.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.errors import ErrorCode


class Feature(NamedTuple):
    """What this broker can do."""

    name: str
    first: int
    last: int


TRANSACTION_VERSION: Final = Feature("transaction.version", 0, 2)
GROUP_VERSION: Final = Feature("group.version", 0, 1)
SHARE_VERSION: Final = Feature("share.version", 0, 1)
STREAMS_VERSION: Final = Feature("streams.version", 0, 1)
SUPPORTED_FEATURES: Final = (GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION, TRANSACTION_VERSION)
"""Each is in force at its last level."""


class UpdateFault(NamedTuple):
    """Why a feature does not get the level that somebody asks for."""

    code: ErrorCode
    message: str


def find_update_fault(name: str, level: int) -> UpdateFault | None:
    """None when the level is in force already."""
    feature = next((one for one in SUPPORTED_FEATURES if one.name == name), None)
    if feature is None:
        known = ", ".join(one.name for one in SUPPORTED_FEATURES)
        return UpdateFault(
            ErrorCode.invalid_update_version,
            f"there is no feature {name!r} here; there are {known}",
        )
    if not feature.first <= level <= feature.last:
        return UpdateFault(
            ErrorCode.invalid_update_version,
            f"{name} has the levels {feature.first} to {feature.last}, and not {level}",
        )
    if level != feature.last:
        return UpdateFault(
            ErrorCode.feature_update_failed,
            f"{name} is at {feature.last}, the level of the brokers' release, and cannot be "
            f"changed to {level}",
        )
    return None
