"""The folder of a pipeline's checkpoint: who runs, how far each query is, what it reports. A shell.

lock             held by the process that runs the pipeline
progress.json    the figures of the last run
progress.prom    the same for Prometheus
spark.log        what Spark said in the last run
starts-NAME.json where a source is read from by queries that have not begun
NAME/            Spark's checkpoint of the query of one sink, or of one dead-letter topic
NAME/moldau-query.json
                 the identity that the query's lakes know it by
NAME/moldau-tally.json
                 how many records the query has set aside, in all runs
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from moldau.errors import StartupError
from moldau.spark.pipeline.rules.queries import (
    Tally,
    decode_tally,
    encode_tally,
    merge_positions,
    parse_offset_log,
)
from moldau.spark.rules.offsets import TopicIds
from moldau.storage.files import RealFiles

_LOCK = "lock"
_LOG = "spark.log"
_IDENTITY = "moldau-query.json"
_TALLY = "moldau-tally.json"
_DEAD_LETTERS = "dead-letters-"
_NO_IDS: TopicIds = MappingProxyType({})


class Checkpoint:
    """One pipeline's checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock; raises StartupError when another process does. It ends with the process,
        however that ends."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StartupError(self._describe_runner()) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    @property
    def log_file(self) -> Path:
        return self.folder / _LOG

    def find_runner(self) -> int | None:
        """The process that runs the pipeline now, or None."""
        try:
            file = (self.folder / _LOCK).open()
        except FileNotFoundError:
            return None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read() or 0)
        return None

    def _describe_runner(self) -> str:
        runner = find_text(self.folder / _LOCK) or "unknown"
        return (
            f"the pipeline with the checkpoint {self.folder} is running already, in process "
            f"{runner}; stop that one first"
        )

    # Queries

    def query_folder(self, name: str) -> Path:
        return self.folder / name

    def dead_letter_query(self, source: str) -> str:
        return _DEAD_LETTERS + source

    def query_id(self, name: str) -> str:
        """The identity of a query, which lives as long as its checkpoint."""
        path = self.query_folder(name) / _IDENTITY
        create_whole(path, json.dumps({"query": str(uuid.uuid4())}))
        return str(json.loads(path.read_text())["query"])

    def has_progress(self, name: str) -> bool:
        """Whether Spark has planned any batch."""
        return _find_last(self.query_folder(name) / "offsets") is not None

    def find_tally(self, name: str) -> Tally:
        """What a query has set aside in all its runs."""
        path = self.query_folder(name) / _TALLY
        text = find_text(path)
        return Tally() if text is None else decode_tally(text, str(path))

    def write_tally(self, name: str, tally: Tally) -> None:
        write_whole(self.query_folder(name) / _TALLY, encode_tally(tally))

    def find_positions(
        self, name: str, topic_ids: TopicIds = _NO_IDS
    ) -> Mapping[str, Mapping[int, int]]:
        """Where the query goes on: behind the last batch that is done. It has no position in a
        topic that was recreated since, as the ids show that the topics have now."""
        folder = self.query_folder(name)
        last = _find_last(folder / "commits")
        text = None if last is None else find_text(folder / "offsets" / str(last))
        return {} if text is None else merge_positions(parse_offset_log(text, topic_ids))


def _find_last(folder: Path) -> int | None:
    try:
        return max(
            (int(path.name) for path in folder.iterdir() if path.name.isdigit()), default=None
        )
    except FileNotFoundError:
        return None


# Files that are there whole or not at all, also after a crash


FILES: Final = RealFiles()


def write_whole(path: Path, text: str) -> None:
    """Put a file in place, or another in place of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    FILES.replace(path, text.encode())


def create_whole(path: Path, text: str) -> bool:
    """Put a file in place unless there is one; whether it was put there."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    write_whole(temporary, text)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    FILES.sync_folder(path.parent)
    return True


def find_text(path: Path) -> str | None:
    """The content of a file, or None where there is none."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
