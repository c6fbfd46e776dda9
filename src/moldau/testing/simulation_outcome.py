"""What a run of a simulated cluster was, and how to see it again. Values."""

from __future__ import annotations

from dataclasses import dataclass


class SimulationFailure(AssertionError):
    """A promise was broken. The message says which, and how to see it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOutcome:
    """What a run was."""

    seed: int
    brokers: int
    schedule: tuple[str, ...]
    violations: tuple[str, ...]
    events: tuple[str, ...]
    digest: str  # of the events: equal for equal runs
    steps: int
    virtual_seconds: float
    acknowledged: int
    seen: int
    commits: int
    transactions: int  # whose commit was confirmed
    denied: int  # attempts of users who had no right at that time
    shared: int  # records that takers have accepted or rejected, with the broker's word for it

    def describe(self, event_lines: int = 200) -> str:
        return "\n".join(
            (
                f"seed {self.seed} with {self.brokers} brokers broke a promise:",
                *(f"  {violation}" for violation in self.violations),
                "schedule:",
                *(f"  {line}" for line in self.schedule),
                f"the last {event_lines} of {len(self.events)} events:",
                *(f"  {line}" for line in self.events[-event_lines:]),
                f"again: make campaign SEEDS=1 FIRST={self.seed} "
                f"(python -m moldau.testing.campaign --first {self.seed} --seeds 1 --events)",
            )
        )

    def require_success(self) -> None:
        if self.violations:
            raise SimulationFailure(self.describe())
