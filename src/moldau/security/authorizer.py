"""Answers who may do what, by the access control lists in force. A shell around
`rules.authorization`: it keeps decisions.

A decision is kept until the lists change, for as many askers and resources as there is room for.
Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.model import NO_ACLS, AclOperation, AclResourceType, Acls, Principal
from moldau.security.rules.authorization import (
    AccessPolicy,
    AclIndex,
    Asked,
    is_allowed,
    is_allowed_somewhere,
)

MOST_DECISIONS: Final = 10_000
"""Are kept at a time; then all are forgotten, which costs a few microseconds each."""

LONGEST_NAME: Final = 512
"""Of a resource whose decisions are kept: a topic's has 249 characters at most, and a client that
makes up names of groups shall not fill the memory with them."""


class Authorizer:
    """`acls` gives the lists in force, one and the same object as long as they do not change."""

    def __init__(self, acls: Callable[[], Acls], policy: AccessPolicy) -> None:
        self._acls = acls
        self._policy = policy
        self._known: Acls = NO_ACLS  # the decisions follow from these
        self._index = AclIndex(NO_ACLS)
        self._decisions: dict[Asked, bool] = {}
        self._somewhere: dict[Asked, bool] = {}  # about all resources of a type; without a name
        self._version = 0

    @property
    def version(self) -> int:
        """Grows when a decision may have become another one."""
        self._refresh()
        return self._version

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
    ) -> bool:
        self._refresh()
        asked = Asked(principal, host, operation, resource_type, name)
        decision = self._decisions.get(asked)
        if decision is None:
            decision = is_allowed(asked, self._index, self._policy)
            if len(name) <= LONGEST_NAME:
                _keep(self._decisions, asked, decision)
        return decision

    def allows_somewhere(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: AclResourceType,
    ) -> bool:
        """Whether there may be any resource of the type for which it is allowed."""
        self._refresh()
        asked = Asked(principal, host, operation, resource_type, "")
        decision = self._somewhere.get(asked)
        if decision is None:
            decision = is_allowed_somewhere(asked, self._index, self._policy)
            _keep(self._somewhere, asked, decision)
        return decision

    def _refresh(self) -> None:
        acls = self._acls()
        if acls is not self._known:
            self._known, self._index = acls, AclIndex(acls)
            self._decisions.clear()
            self._somewhere.clear()
            self._version += 1


def _keep(decisions: dict[Asked, bool], asked: Asked, decision: bool) -> None:
    if len(decisions) >= MOST_DECISIONS:
        decisions.clear()
    decisions[asked] = decision
