"""Which quota holds for a request: the most particular one, as Kafka chooses it (QUO-2).

    1  the client id of the user       5  any client of any user
    2  any client of the user          6  any user
    3  the user                        7  the client id
    4  the client id of any user       8  any client

The one that is found says whose account is charged, too. A quota of a user is shared by all clients
of that user; one of a client id of a user is that pair's own; and a default one is a quota for each
that it holds for, not one that they share. A rule: values in, values out.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.quotas.rules.entities import DEFAULT, QuotaEntity, QuotaKind, Quotas


class QuotaAccount(NamedTuple):
    """Who is charged: a user, a client id, or a client id of a user."""

    kind: QuotaKind
    user: str | None
    client_id: str | None
    ip: str | None = None


class AppliedQuota(NamedTuple):
    """A limit, and the account that it is measured on."""

    account: QuotaAccount
    limit: float


class QuotaTable:
    """The quotas by kind. Made anew when one of them changes."""

    def __init__(self, quotas: Quotas) -> None:
        self._limits: dict[QuotaKind, dict[QuotaEntity, float]] = {}
        for kind in QuotaKind:
            limits = {
                entity: values[kind.value]
                for entity, values in quotas.items()
                if kind.value in values
            }
            if limits:
                self._limits[kind] = limits

    @property
    def kinds(self) -> frozenset[QuotaKind]:
        """What is limited for anybody."""
        return frozenset(self._limits)

    def find(self, kind: QuotaKind, user: str, client_id: str) -> AppliedQuota | None:
        limits = self._limits.get(kind)
        if limits is None:
            return None
        for entity, account_user, account_client in (
            (QuotaEntity(user, client_id), user, client_id),
            (QuotaEntity(user, DEFAULT), user, client_id),
            (QuotaEntity(user), user, None),
            (QuotaEntity(DEFAULT, client_id), user, client_id),
            (QuotaEntity(DEFAULT, DEFAULT), user, client_id),
            (QuotaEntity(DEFAULT), user, None),
            (QuotaEntity(None, client_id), None, client_id),
            (QuotaEntity(None, DEFAULT), None, client_id),
        ):
            limit = limits.get(entity)
            if limit is not None:
                return AppliedQuota(QuotaAccount(kind, account_user, account_client), limit)
        return None

    def find_for_address(self, ip: str) -> AppliedQuota | None:
        """The quota on new connections from an address."""
        limits = self._limits.get(QuotaKind.CONNECTION)
        if limits is None:
            return None
        limit = limits.get(QuotaEntity(ip=ip), limits.get(QuotaEntity(ip=DEFAULT)))
        if limit is None:
            return None
        return AppliedQuota(QuotaAccount(QuotaKind.CONNECTION, None, None, ip), limit)
