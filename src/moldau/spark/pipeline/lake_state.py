"""What a lake remembers of the query that loads it: its journal, its staging, its columns.

Used by the driver alone, one batch at a time. A shell around `rules.journal`.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from moldau.errors import ConfigurationError
from moldau.spark.pipeline.durable_files import (
    create_whole,
    find_text,
    is_there,
    sync_files,
    sync_folder,
    write_whole,
)
from moldau.spark.pipeline.rules.lake import (
    COMPACTION_ENTRY,
    JOURNAL_FOLDER,
    STAGING_FOLDER,
    STATE_FOLDER,
    JournalEntry,
    batch_entry,
    decode_entry,
    encode_entry,
    find_batch_id,
    grow_columns,
    query_folder,
)

_OWNER = "owner.json"
_COLUMNS = "columns.json"
_KEPT_ENTRIES = 100
"""Spark runs no batch again but the last; the others are kept for people who look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Where one attempt at a batch is written. A dead driver's tasks have another one."""

    name: str
    """Relative to the lake."""
    folder: Path


class LakeState:
    """The state of one lake, for one query."""

    def __init__(self, folder: Path, query_id: str) -> None:
        self.folder = folder
        self.query_id = query_id
        self._own = query_folder(query_id)
        self._journal = folder / self._own / JOURNAL_FOLDER

    # Beginning

    def begin(self, *, has_progress: bool) -> None:
        """Take the lake, and finish what an earlier run left; raises ConfigurationError.

        `has_progress` tells whether Spark's checkpoint knows of any batch.
        """
        self._journal.mkdir(parents=True, exist_ok=True)
        self._require_own()
        entries = self._batch_entries()
        if entries and not has_progress:
            self.refuse_empty_checkpoint(max(entries))
        self._finish_compaction()
        for batch_id in entries:
            self._apply(self._read(batch_entry(batch_id)))
        self._clear_staging()

    def _require_own(self) -> None:
        owner = self.folder / STATE_FOLDER / _OWNER
        if create_whole(owner, json.dumps({"query": self.query_id})):
            return
        found = json.loads(owner.read_text()).get("query")
        if found != self.query_id:
            raise ConfigurationError(
                f"{self.folder} was loaded with another checkpoint (query {found}): with this one "
                "its records would be loaded a second time; put that checkpoint back, or load into "
                f"another folder. To add to what is there all the same, remove {owner}"
            )

    def refuse_empty_checkpoint(self, last_batch_id: int) -> NoReturn:
        """Batches are numbered anew from an empty checkpoint: they would count twice, or not."""
        raise ConfigurationError(
            f"{self.folder} has batches up to {last_batch_id} of this pipeline, and the pipeline's "
            "checkpoint is empty: what is loaded and what is not could not be told apart; put the "
            "checkpoint back, or load into another folder"
        )

    def grow(self, columns: Mapping[str, str]) -> None:
        """Note the columns of what will be written; raises ConfigurationError."""
        path = self.folder / STATE_FOLDER / _COLUMNS
        text = find_text(path)
        kept: dict[str, str] = {} if text is None else json.loads(text)
        grown = grow_columns(kept, columns, str(self.folder))
        if grown != kept:
            write_whole(path, json.dumps(grown, indent=1))

    # Batches

    def is_loaded(self, batch_id: int) -> bool:
        """Whether the batch counts as loaded; what was left of its moves is done."""
        text = find_text(self._journal / batch_entry(batch_id))
        if text is None:
            return False
        self._apply(decode_entry(text, batch_entry(batch_id)))
        return True

    def new_staging(self, label: str) -> Staging:
        """A folder of its own for one attempt; not made yet."""
        name = f"{self._own}/{STAGING_FOLDER}/{label}-{uuid.uuid4().hex}"
        return Staging(name=name, folder=self.folder / name)

    def publish(self, batch_id: int, entry: JournalEntry) -> bool:
        """Make the batch count, then show its files; False when it counts already."""
        sync_files(self.folder / move.staged for move in entry.moves)
        is_first = create_whole(self._journal / batch_entry(batch_id), encode_entry(entry))
        if is_first:
            self._apply(entry)
            self._forget_before(batch_id - _KEPT_ENTRIES)
        return is_first

    def replace(self, entry: JournalEntry) -> None:
        """Put merged files in the place of others."""
        sync_files(self.folder / move.staged for move in entry.moves)
        write_whole(self._journal / COMPACTION_ENTRY, encode_entry(entry))
        self._finish_compaction()

    def drop(self, staging: Staging) -> None:
        shutil.rmtree(staging.folder, ignore_errors=True)

    # The journal

    def _finish_compaction(self) -> None:
        path = self._journal / COMPACTION_ENTRY
        text = find_text(path)
        if text is not None:
            self._apply(decode_entry(text, COMPACTION_ENTRY))
            path.unlink()

    def _apply(self, entry: JournalEntry) -> None:
        """Do what the entry says, as far as it is not done."""
        folders: set[Path] = set()
        for name in entry.remove:
            (self.folder / name).unlink(missing_ok=True)
        for move in entry.moves:
            staged, published = self.folder / move.staged, self.folder / move.published
            if is_there(staged):
                published.parent.mkdir(parents=True, exist_ok=True)
                staged.replace(published)
                folders.add(published.parent)
        for folder in folders:
            sync_folder(folder)

    def _read(self, name: str) -> JournalEntry:
        return decode_entry((self._journal / name).read_text(), name)

    def _batch_entries(self) -> list[int]:
        found = (find_batch_id(path.name) for path in self._journal.iterdir())
        return sorted(batch_id for batch_id in found if batch_id is not None)

    def _forget_before(self, batch_id: int) -> None:
        for old in self._batch_entries():
            if old >= batch_id:
                return
            (self._journal / batch_entry(old)).unlink(missing_ok=True)

    def _clear_staging(self) -> None:
        """What was staged and is in no entry was never published, and is loaded anew."""
        shutil.rmtree(self.folder / self._own / STAGING_FOLDER, ignore_errors=True)
