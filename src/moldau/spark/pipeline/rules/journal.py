"""The journal of a lake: what is done about a batch, or a compaction, whatever happens. A rule.

An entry is written before the first file is moved; from then on the batch counts as loaded, and
whoever finds the entry finishes the moves. All of them may be done again: a move whose staged file
is gone has happened, and so has the removal of a file that is gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from moldau.errors import InvariantViolation
from moldau.spark.pipeline.rules.lake_layout import Move


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """Removals come before moves: readers may miss rows for a moment, but never see them twice."""

    remove: tuple[str, ...]
    moves: tuple[Move, ...]
    row_count: int


def encode_entry(entry: JournalEntry) -> str:
    """As it is written to a file."""
    return json.dumps(
        {
            "remove": entry.remove,
            "moves": [[move.staged, move.published] for move in entry.moves],
            "rows": entry.row_count,
        },
        indent=1,
    )


def decode_entry(text: str, name: str) -> JournalEntry:
    """Raises InvariantViolation: an entry is written whole, or it is not there."""
    try:
        document = json.loads(text)
        return JournalEntry(
            remove=tuple(document["remove"]),
            moves=tuple(
                Move(staged=staged, published=published) for staged, published in document["moves"]
            ),
            row_count=int(document["rows"]),
        )
    except (ValueError, KeyError, TypeError) as fault:
        raise InvariantViolation(f"{name} is no entry of a lake's journal: {fault!r}") from fault
