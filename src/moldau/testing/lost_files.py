"""Which files of a log are lost while its broker is stopped: somebody cleans up, or a copy of the
folder was not whole. A rule over files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moldau.model import TopicPartition
from moldau.storage.rules.file_names import LOG_SUFFIX
from moldau.testing.memory_files import MemoryFiles


@dataclass(frozen=True, slots=True)
class FileLoss:
    """A sealed segment is gone or cut short (LOG-13), or the folder is gone (LOG-14)."""

    partition: TopicPartition
    path: Path
    kept_bytes: int | None = None  # of a segment that is cut short; None: it is gone

    @property
    def rule(self) -> str:
        return "LOG-13" if self.path.suffix == LOG_SUFFIX else "LOG-14"

    def __str__(self) -> str:
        return str(self.path) if self.kept_bytes is None else f"the end of {self.path}"

    def happen(self, files: MemoryFiles) -> None:
        """Durably: what is not there does not come back with a power loss."""
        if self.path.suffix != LOG_SUFFIX:
            files.remove_folder(self.path)
        elif self.kept_bytes is None:
            files.remove(self.path)
        else:
            files.replace(self.path, files.read(self.path)[: self.kept_bytes])
        files.sync_folder(self.path.parent)


def draw_loss(
    files: MemoryFiles, data: Path, partitions: Sequence[TopicPartition], amount: float
) -> FileLoss | None:
    """One of all losses that are possible, by a number from 0 to 1; None where nothing has records.

    As often a segment as a folder, where there are sealed ones.
    """
    of_segments, of_folders = [], []
    for partition in partitions:
        folder = data / str(partition)
        names = [name for name in files.peek_folder(folder) if name.endswith(LOG_SUFFIX)]
        sizes = {name: len(files.peek(folder / name) or b"") for name in names}
        if any(sizes.values()):
            of_folders.append(FileLoss(partition, folder))
        for name in sorted(names)[:-1]:
            if sizes[name]:
                of_segments.append(FileLoss(partition, folder / name))
                of_segments.append(FileLoss(partition, folder / name, sizes[name] // 2))
    losses = of_folders if not of_segments or amount < 0.5 else of_segments
    return losses[int(amount * 1000) % len(losses)] if losses else None
