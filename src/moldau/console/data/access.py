"""Asks about users and quotas, and changes them. A shell.

The cluster decides who may: what a page does not show is refused by brokers, too.
"""

from __future__ import annotations

from moldau.console.data.cluster import Cluster
from moldau.errors import UnsupportedByBrokerError
from moldau.model import AclOperation
from moldau.quotas import QuotaEntity


async def find_rights(cluster: Cluster) -> frozenset[AclOperation]:
    """What may be done to the cluster. All of it, as far as is known, where it does not tell."""
    try:
        return await cluster.admin.find_cluster_operations()
    except UnsupportedByBrokerError:
        return frozenset(AclOperation)


async def set_password(cluster: Cluster, user: str, password: str) -> str | None:
    """Returns why it has no effect yet, if there is a reason."""
    cluster.require_writable()
    return await cluster.admin.set_scram_password(user, password)


async def delete_user(cluster: Cluster, user: str) -> None:
    cluster.require_writable()
    await cluster.admin.delete_scram_credentials(user)


async def change_quota(
    cluster: Cluster, entity: QuotaEntity, name: str, limit: float | None
) -> None:
    """Set a limit, or remove it with None."""
    cluster.require_writable()
    error = (await cluster.admin.alter_client_quotas({entity: {name: limit}}))[entity]
    if error is not None:
        raise error
