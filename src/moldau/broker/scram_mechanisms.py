"""The numbers of SCRAM's mechanisms in Kafka's protocol. Values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

MECHANISMS_BY_NUMBER: Final[Mapping[int, str]] = MappingProxyType(
    {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
)


def number_of(mechanism: str) -> int:
    return next(number for number, name in MECHANISMS_BY_NUMBER.items() if name == mechanism)
