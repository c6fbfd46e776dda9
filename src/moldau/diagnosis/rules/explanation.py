"""An answer to "why is it so": a verdict, what it rests on, and what to do. Values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What people read, and `facts` for machines."""

    verdict: str  # one word or a few, the same for the same case
    lines: Sequence[str]
    facts: Mapping[str, object] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        return {"verdict": self.verdict, "explanation": list(self.lines), **self.facts}


def show_duration(milliseconds: float) -> str:
    """As people say it: 7 days, 5 minutes, 1.5 seconds."""
    for unit, size in (("day", DAY_MS), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if milliseconds >= size:
            number = milliseconds / size
            text = f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
            return f"{text} {unit}{'' if text == '1' else 's'}"
    return f"{milliseconds:.0f} ms"


def number_of(configs: Mapping[str, str], name: str, otherwise: int) -> int:
    """A setting as a number; `otherwise` where it is none."""
    try:
        return int(configs.get(name, ""))
    except ValueError:
        return otherwise


def policies_of(configs: Mapping[str, str]) -> frozenset[str]:
    text = configs.get("cleanup.policy", "delete")
    return frozenset(one.strip() for one in text.split(",") if one.strip())
