"""What a look at a cluster finds: how bad it is, and what to do. A rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

_NAMED = 5


class Severity(IntEnum):
    """Ordered: the larger the worse."""

    INFO = 0  # worth knowing
    WARNING = 1  # will hurt when something else happens
    CRITICAL = 2  # hurts now, or data is in danger

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that somebody should know."""

    severity: Severity
    check: str  # names the check, for machines
    subject: str  # what it is about
    message: str  # what is the case, and what follows from it
    advice: str  # what to do

    def document(self) -> dict[str, str]:
        return {
            "severity": self.severity.label,
            "check": self.check,
            "subject": self.subject,
            "message": self.message,
            "advice": self.advice,
        }


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by check and subject."""
    return sorted(findings, key=lambda one: (-one.severity, one.check, one.subject))


def name_brokers(ids: Sequence[int]) -> str:
    """`broker 3`, `brokers 1, 3`."""
    return f"broker{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"


def name_some(names: Sequence[str]) -> str:
    """Some of many, and how many more there are."""
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
