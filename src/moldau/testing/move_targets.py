"""Where partitions may be in the end, by what operators asked for and were told. A rule.

A move that was acknowledged comes about, unless somebody asks for another one. One that was given
up may come about or not, at any later time. A cancellation goes back to where the partition was
before, which depends on how far it had come: after one, it may be anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from moldau.model import TopicPartition


@dataclass(slots=True, eq=False)
class AskedMove:
    """One request, as its operator sees it."""

    partition: TopicPartition
    replicas: frozenset[int] | None  # None: back to where it was
    began: int
    ended: int | None = None  # None: it is under way, or in doubt
    is_acknowledged: bool = False


@dataclass(slots=True)
class MoveTargets:
    """All moves of a run. Requests are numbered in the order in which they begin and end."""

    _moves: list[AskedMove] = field(default_factory=list)
    _events: int = 0

    def ask(self, partition: TopicPartition, replicas: Iterable[int] | None) -> AskedMove:
        self._events += 1
        wanted = None if replicas is None else frozenset(replicas)
        move = AskedMove(partition, wanted, began=self._events)
        self._moves.append(move)
        return move

    def answer(self, move: AskedMove, error_code: int | None, *, is_in_doubt: bool = False) -> None:
        """0: it was accepted; another code: it was refused; None: it was given up.

        What was asked for more than once, without an answer, may come about again later.
        """
        self._events += 1
        move.is_acknowledged = error_code == 0
        if error_code is not None and not is_in_doubt:
            move.ended = self._events

    def forget_topic(self, topic: str) -> None:
        self._moves = [move for move in self._moves if move.partition.topic != topic]

    def may_leave(self, partition: TopicPartition, replicas: Iterable[int]) -> frozenset[int]:
        """Those of a partition's replicas that a request may take away at any moment.

        Of an acknowledged move nobody but the cluster knows how far it is, so the last one counts;
        and where a cancellation leads to is not known at all.
        """
        moves = [move for move in self._moves if move.partition == partition]
        acknowledged = [move for move in moves if move.is_acknowledged]
        open_moves = [*(move for move in moves if move.ended is None), *acknowledged[-1:]]
        present = frozenset(replicas)
        return frozenset().union(*(present - (move.replicas or frozenset()) for move in open_moves))

    def find_lost(self, replicas: Mapping[TopicPartition, Collection[int]]) -> list[str]:
        """The partitions that are where nobody sent them, after an acknowledged move."""
        lost = []
        for partition, present in sorted(replicas.items()):
            moves = [move for move in self._moves if move.partition == partition]
            possible = self._possible(moves)
            if possible is not None and frozenset(present) not in possible:
                wanted = sorted(sorted(each) for each in possible)
                lost.append(f"{partition} is on {sorted(present)}, and was sent to {wanted}")
        return lost

    def _possible(self, moves: list[AskedMove]) -> list[frozenset[int]] | None:
        """None when it may be anywhere."""
        accepted = [move for move in moves if move.is_acknowledged]
        if not accepted:
            return None
        last = max(accepted, key=lambda move: move.began)
        late = [move for move in moves if _may_follow(move, last)]
        targets = [move.replicas for move in (last, *late)]
        return None if None in targets else [each for each in targets if each is not None]


def _may_follow(move: AskedMove, last: AskedMove) -> bool:
    """Whether a move may have come about after another one."""
    if move is last or (move.ended is not None and not move.is_acknowledged):
        return False
    return move.ended is None or move.ended > last.began
