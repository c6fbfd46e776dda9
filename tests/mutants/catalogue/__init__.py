"""Every rule that is broken on purpose, by room."""

from __future__ import annotations

from typing import Final

from mutants.catalogue import (
    access_control,
    clients,
    cluster,
    connections,
    consumer_groups,
    deletion,
    groups,
    logins,
    operating,
    partition_transactions,
    quotas,
    replicas,
    replication,
    served_store,
    sessions,
    share_coordinators,
    shares,
    storage,
    streams_groups,
    transactions,
)
from mutants.mutant import Mutant

MUTANTS: Final[tuple[Mutant, ...]] = (
    *replication.MUTANTS,
    *replicas.MUTANTS,
    *sessions.MUTANTS,
    *connections.MUTANTS,
    *cluster.MUTANTS,
    *deletion.MUTANTS,
    *storage.MUTANTS,
    *groups.MUTANTS,
    *consumer_groups.MUTANTS,
    *streams_groups.MUTANTS,
    *shares.MUTANTS,
    *clients.MUTANTS,
    *share_coordinators.MUTANTS,
    *partition_transactions.MUTANTS,
    *transactions.MUTANTS,
    *served_store.MUTANTS,
    *access_control.MUTANTS,
    *logins.MUTANTS,
    *quotas.MUTANTS,
    *operating.MUTANTS,
)


def find_mutant(name: str) -> Mutant:
    for mutant in MUTANTS:
        if mutant.name == name:
            return mutant
    raise KeyError(f"there is no mutant {name!r}")
