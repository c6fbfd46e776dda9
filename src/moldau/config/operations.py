"""A change of a dynamic config, as clients ask for it and clusters apply it. Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias


class ConfigOperation(IntEnum):
    """How to change a setting; the numbers of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One change of one setting. DELETE has no value: the default applies again."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


ConfigAlteration: TypeAlias = Sequence[ConfigChange] | Mapping[str, str]
"""Changes of single settings (IncrementalAlterConfigs), or all settings that there shall be
(AlterConfigs)."""
