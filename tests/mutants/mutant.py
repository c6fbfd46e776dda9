"""What a mutant is, and what is expected of it. Values; nothing of Moldau is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Edit(NamedTuple):
    """A piece of code that a function has once, and what takes its place.

    Code is compared as a syntax tree (`places`). Without `by` the statements go. `...` as the body
    of a compound statement stands for any body: `if leader < 0: ...`. `name=value` is an assignment
    or the argument of a call.
    """

    module: str
    function: str
    """Its qualified name, as in `Log.append`; a class; or "" for the whole module."""
    replace: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeds:
    """Runs of the simulated cluster, of which at least one has to notice."""

    count: int = 25
    first: int = 1
    kinds: tuple[str, ...] = ()
    """Names of `FaultKind`, for a rule that is about some; all without."""
    story: str = ""
    """A name in `stories`; the seed's own without."""
    brokers: int | None = None
    options: tuple[tuple[str, str], ...] = ()
    transactions: bool = False
    """Whether there are any, in each of them."""
    shares: bool = False
    """Whether there is a share group, in each of them."""
    access: bool = False
    """Whether there are users whose rights and quotas change, in each of them."""
    streams: bool = False
    """Whether there is a streams group, in each of them."""
    is_served: bool = False
    """Whether all brokers are on one machine, and their supervisor serves the store."""
    operations: tuple[str, ...] = ()
    """Names of families of operations that each of them has; the seed's own without."""
    by: tuple[str, ...] = ()
    """The invariants, or exceptions, of which one has to be reported; any without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A rule broken on purpose.

    It is caught when one of the `seeds` notices, and when each of the `tests` fails. One that is
    `redundant` survives the seeds, and `caught_with` names the mutant in which the rule that stands
    behind it is broken too.
    """

    name: str
    rule: str
    """The numbered invariant, or what it is about."""
    breaks: str
    """What is wrong in it, in a message."""
    edits: tuple[Edit, ...]
    seeds: Seeds | None = None
    tests: tuple[str, ...] = ()
    """Of pytest, from `tests/` on. At least one test of each has to fail."""
    redundant: str = ""
    """Why nobody can notice."""
    caught_with: str = ""
    is_sample: bool = False
    """Quick, and part of `make test`."""
