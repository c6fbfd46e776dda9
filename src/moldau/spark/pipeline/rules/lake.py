"""What a lake consists of, and how it changes. A rule.

    date=2026-11-15/hour=05/load-1f3a9c04-0000000012-0000.parquet   seen by every reader
    _moldau/1f3a9c04/journal/batch-0000000012.json                  what batch 12 is made of
    _moldau/1f3a9c04/journal/compact.json                           a compaction under way
    _moldau/1f3a9c04/staging/0000000012-<attempt>/...               written, not published
    _common_metadata                                                the columns of all files

Readers of Parquet (Spark, pyarrow, DuckDB, Polars) pass over names that begin with an underscore.
The name of a published file follows from the query and the batch, so that publishing a batch a
second time replaces what is there instead of adding to it.

An entry of the journal is written before the first file is moved; from then on the batch counts as
loaded, and whoever finds the entry finishes the moves. All of them may be done again: a move whose
staged file is gone has happened, and so has the removal of a file that is gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from moldau.errors import ConfigurationError, InvariantViolation

# Files

STATE_FOLDER = "_moldau"
JOURNAL_FOLDER = "journal"
STAGING_FOLDER = "staging"
COMMON_METADATA = "_common_metadata"
COMPACTION_ENTRY = "compact.json"
DATE_COLUMN = "date"
HOUR_COLUMN = "hour"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""What Spark puts in the name of a folder where a row has no value for it."""

_QUERY_DIGITS = 8
_BATCH_ENTRY = re.compile(r"batch-(\d{10,})\.json")
_PART = re.compile(r"(?:load|merged)-[0-9a-f]+-.*\.parquet")
_HIVE = re.compile(r"([^/=]+)=([^/]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A file that is renamed; both paths are relative to the lake."""

    staged: str
    published: str


def query_folder(query_id: str) -> str:
    """The folder of one query's state: a new checkpoint is a new query, and begins its own."""
    return f"{STATE_FOLDER}/{short_query(query_id)}"


def short_query(query_id: str) -> str:
    return query_id.replace("-", "")[:_QUERY_DIGITS]


def batch_entry(batch_id: int) -> str:
    return f"batch-{batch_id:010d}.json"


def find_batch_id(entry: str) -> int | None:
    """Which batch an entry of the journal is about; None when it is about something else."""
    found = _BATCH_ENTRY.fullmatch(entry)
    return None if found is None else int(found[1])


def plan_moves(query_id: str, batch_id: int, staging: str, staged: Iterable[str]) -> list[Move]:
    """Where the staged files of a batch go; `staged` are paths inside the staging folder."""
    counts: dict[str, int] = {}
    moves: list[Move] = []
    for path in sorted(path for path in staged if _is_data(path)):
        folder, _, _ = path.rpartition("/")
        number = counts.get(folder, 0)
        counts[folder] = number + 1
        name = f"load-{short_query(query_id)}-{batch_id:010d}-{number:04d}.parquet"
        published = f"{folder}/{name}" if folder else name
        moves.append(Move(staged=f"{staging}/{path}", published=published))
    return moves


def is_published_part(name: str) -> bool:
    """Whether a pipeline wrote the file: others are left alone."""
    return _PART.fullmatch(name) is not None


def partition_values(path: str) -> Mapping[str, str]:
    """`date` and `hour` of a path with folders such as `date=2026-11-15/hour=05`."""
    folder, _, _ = path.rpartition("/")
    return dict(_HIVE.findall(folder))


def _is_data(path: str) -> bool:
    """Spark leaves marks and checksums beside what it writes."""
    return path.endswith(".parquet") and not any(
        part.startswith(("_", ".")) for part in path.split("/")
    )


# The journal


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


# Merging small files

_SMALL_SHARE = 2
"""A file is small below this part of the target: a larger one would not become much fewer."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FileSize:
    """A published file."""

    path: str
    size_bytes: int


def plan_compaction(
    files: Iterable[FileSize], *, target_bytes: int, min_files: int, is_closed: bool = False
) -> list[tuple[str, ...]]:
    """Groups of files of one folder, each to become one file.

    Files are merged in their order until the target is reached. A folder is left alone until there
    are enough small files: merging two at a time would write the same rows again and again. A
    folder where nothing has arrived for a while (`is_closed`) is merged for good, as soon as there
    are two.
    """
    small = [one for one in sorted(files) if one.size_bytes * _SMALL_SHARE < target_bytes]
    if len(small) < (2 if is_closed else min_files):
        return []
    groups: list[list[str]] = [[]]
    filled = 0
    for one in small:
        if groups[-1] and filled + one.size_bytes > target_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(one.path)
        filled += one.size_bytes
    return [tuple(group) for group in groups if len(group) > 1]


# Late rows


def count_late(rows_by_folder: Mapping[str, int], *, now: datetime, late_after: timedelta) -> int:
    """Rows in folders, such as `date=2026-11-15/hour=05`, whose time was over so long ago.

    They are loaded like others, into the hour that they belong to; they are counted so that
    somebody who has already read that hour can know.
    """
    return sum(
        rows
        for folder, rows in rows_by_folder.items()
        if (end := plan_end(folder)) is not None and end + late_after < now
    )


def plan_end(folder: str) -> datetime | None:
    """When the day or hour of a folder was over; None when it names none."""
    values = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
    try:
        day = datetime.strptime(values[DATE_COLUMN], "%Y-%m-%d").replace(tzinfo=UTC)
        if HOUR_COLUMN not in values:
            return day + timedelta(days=1)
        return day + timedelta(hours=int(values[HOUR_COLUMN]) + 1)
    except (KeyError, ValueError, OverflowError):
        return None


# Columns


def grow_columns(kept: Mapping[str, str], new: Mapping[str, str], where: str) -> dict[str, str]:
    """All columns of a lake, the new ones last; raises ConfigurationError.

    Both map names to types. A column that is new is null in what was written before. One that is
    gone, or is of another type, would make old and new files disagree.
    """
    gone = [name for name in kept if name not in new]
    if gone:
        raise ConfigurationError(
            f"{where} has the column {gone[0]!r}, which is no longer written; select it, as NULL "
            "if there is nothing to put in it, or load into another folder"
        )
    for name, kind in kept.items():
        if new[name] != kind:
            raise ConfigurationError(
                f"{where} has the column {name!r} as {kind}, now it is {new[name]}; cast it to "
                f"{kind}, or load into another folder"
            )
    return {**kept, **{name: kind for name, kind in new.items() if name not in kept}}
