"""What becomes of the transactions of a batch, with exactlyOnce. A rule.

The decision over a batch is one record, of which there is one for each query and batch: which
transactions are committed, and which are aborted. A batch that is decided is not decided again,
whoever writes its rows once more. `docs/spark.md` says why that is enough.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from moldau.client.producer.rules.transaction_manager import PreparedTransaction
from moldau.errors import TransactionAbortedError

_PREFIX = "moldau-spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided over a batch; the latest one of a query is all that has to be known."""

    batch_id: int
    commit: tuple[PreparedTransaction, ...]
    abort: tuple[PreparedTransaction, ...]

    def encode(self) -> bytes:
        written = {
            "batch": self.batch_id,
            "commit": [_row(one) for one in self.commit],
            "abort": [_row(one) for one in self.abort],
        }
        return json.dumps(written, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Decision:
        read = json.loads(value)
        return cls(
            batch_id=read["batch"],
            commit=tuple(map(_transaction, read["commit"])),
            abort=tuple(map(_transaction, read["abort"])),
        )


def _row(one: PreparedTransaction) -> list[object]:
    return [one.transactional_id, one.producer_id, one.producer_epoch]


def _transaction(row: list[object]) -> PreparedTransaction:
    name, producer_id, epoch = row
    return PreparedTransaction(
        transactional_id=str(name),
        producer_id=int(str(producer_id)),
        producer_epoch=int(str(epoch)),
    )


def decide(
    batch_id: int,
    offered: Collection[PreparedTransaction],
    open_ones: Collection[PreparedTransaction],
) -> Decision:
    """The decision over a batch without one: what its tasks have prepared is committed.

    `open_ones` are all of the query, asked for before the decision: none of them can be of a later
    batch, and those that are not offered were left by attempts that failed, or lost.
    """
    missing = set(offered) - set(open_ones)
    if missing:
        names = ", ".join(sorted(one.transactional_id for one in missing))
        raise TransactionAbortedError(
            f"batch {batch_id} cannot be committed: somebody has ended transactions that its tasks "
            f"had prepared ({names}); start the query again, and the batch is written anew"
        )
    return Decision(
        batch_id=batch_id,
        commit=tuple(offered),
        abort=tuple(one for one in open_ones if one not in set(offered)),
    )


def find_undecided(
    latest: Decision | None, batch_id: int, offered: Collection[PreparedTransaction]
) -> tuple[PreparedTransaction, ...]:
    """Those of a batch's tasks that no decision commits: nothing will, and they can be aborted."""
    if latest is None or latest.batch_id != batch_id:
        return tuple(offered)
    return tuple(one for one in offered if one not in set(latest.commit))


# Names


def task_transactional_id(query_id: str, owner: str) -> str:
    """`owner` is a name that nobody else has: no attempt can fence another one."""
    return f"{_PREFIX}-{query_id}-{owner}"


def is_of_task(transactional_id: str, query_id: str) -> bool:
    return transactional_id.startswith(task_transactional_id(query_id, ""))


def driver_transactional_id(query_id: str) -> str:
    """The id under which the drivers of a query fence each other."""
    return f"{_PREFIX}-driver-{query_id}"


MAX_DECISION_BYTES: Final = 16 * 1024 * 1024
"""A task has about a hundred bytes in it."""

STATE_PARTITIONS: Final = 16
"""Partitions of the state topic that are used: the decisions of a query must be found again where
they were written, also when somebody has added partitions."""


def partition_of(query_id: str) -> int:
    """Where in the state topic the decisions of a query are."""
    return crc32(query_id.encode()) % STATE_PARTITIONS
