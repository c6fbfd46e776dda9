"""Whether a broker is alive and ready, and why not. Rules: values in, reasons out.

Alive is a process whose loop turns: who restarts brokers asks for it. Ready is one that clients can
be sent to: it serves, is in its cluster and leads what it is said to lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_NAMED = 5
"""Partitions that a reason names; of the rest, the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a broker knows of itself."""

    is_serving: bool
    is_stopping: bool = False
    is_registered: bool = False
    holds_lease: bool = False
    unopened: Sequence[str] = ()  # partitions that the metadata says it leads, and it does not yet
    failed_directories: Sequence[str] = ()


def find_unready(known: Readiness) -> list[str]:
    """Why it is not ready; nothing when it is. A failed disk alone does not make it unready: what
    is on the others is served."""
    if known.is_stopping:
        return ["the broker is stopping"]
    if not known.is_serving:
        return ["the broker is starting: it loads its logs or waits for the coordination store"]
    reasons = []
    if not known.is_registered:
        reasons.append("the broker is not registered in its cluster")
    if not known.holds_lease:
        reasons.append("the coordination store has not been heard of for too long")
    if known.unopened:
        reasons.append(f"partitions are still being opened: {_name(known.unopened)}")
    return reasons


def _name(partitions: Iterable[str]) -> str:
    all_of_them = sorted(partitions)
    rest = len(all_of_them) - _NAMED
    return ", ".join(all_of_them[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
