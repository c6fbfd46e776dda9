"""Where the files of a lake are, and what they are called. A rule.

    date=2026-11-15/hour=05/load-1f3a9c04-0000000012-0000.parquet   seen by every reader
    _moldau/1f3a9c04/journal/batch-0000000012.json                  what batch 12 is made of
    _moldau/1f3a9c04/journal/compact.json                           a compaction under way
    _moldau/1f3a9c04/staging/0000000012-<attempt>/...               written, not published
    _common_metadata                                                the columns of all files

Readers of Parquet (Spark, pyarrow, DuckDB, Polars) pass over names that begin with an underscore.
The name of a published file follows from the query and the batch, so that publishing a batch a
second time replaces what is there instead of adding to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
