"""The features of the cluster that clients can ask for: their levels, and which one is in force.

`transaction.version` (KIP-890): 0 and 1 are told apart by the log of transactions only; under 2
the end of a transaction raises its producer's epoch, and leaders of partitions add them by
themselves. `group.version` (KIP-848): with 1, groups of the consumer protocol are served. Values.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Feature(NamedTuple):
    """What this broker can do."""

    name: str
    first: int
    last: int


TRANSACTION_VERSION: Final = Feature("transaction.version", 0, 2)
GROUP_VERSION: Final = Feature("group.version", 0, 1)
SUPPORTED_FEATURES: Final = (GROUP_VERSION, TRANSACTION_VERSION)
