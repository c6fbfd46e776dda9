"""Finishes in a log's folder what was under way when the broker stopped.

Compaction puts its results into the log by renaming files, one after the other. A broker that ends
in the middle leaves files of both; which of them go and which take another's place is planned in
`rules.recovery_plan`.

A shell. It blocks: run it in a worker.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from moldau.storage.batch_scan import walk_batches, walk_valid_batches
from moldau.storage.files import Files
from moldau.storage.rules.file_names import LOG_SUFFIX, SWAP_SUFFIX, segment_file_name
from moldau.storage.rules.recovery_plan import FolderPlan, find_swap_segments, plan_folder

_log = logging.getLogger("moldau.storage.recovery")


def tidy_folder(files: Files, folder: Path, names: Sequence[str]) -> FolderPlan:
    """Remove what is left over and put what was ready in its place; returns what was done."""
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        names = _without_damaged_swaps(files, folder, names)
    swaps = find_swap_segments(names)
    plan = plan_folder(names, _end_of_swap(files, folder, swaps[-1]) if swaps else None)
    for name in plan.removals:
        files.remove(folder / name)
    if plan.renames:
        # What they were made from must not come back beside them.
        files.sync_folder(folder)
    for name, target in plan.renames:
        files.rename(folder / name, folder / target)
    return plan


def empty_folder(files: Files, folder: Path) -> None:
    """Give back the room of a log that was deleted; its folder still says that it was."""
    with contextlib.suppress(OSError):  # whoever removes the folder says what is wrong
        for name in files.list_folder(folder):
            files.remove(folder / name)


def _without_damaged_swaps(files: Files, folder: Path, names: Sequence[str]) -> Sequence[str]:
    """What compaction had ready takes nobody's place if it is not whole any more."""
    for base_offset in find_swap_segments(names):
        name = segment_file_name(base_offset, LOG_SUFFIX)
        if name in names and not _is_whole(files, folder / (name + SWAP_SUFFIX)):
            _log.warning("%s is damaged and removed", folder / (name + SWAP_SUFFIX))
            start = segment_file_name(base_offset, ".")
            going = {one for one in names if one.startswith(start) and one.endswith(SWAP_SUFFIX)}
            for one in sorted(going):
                files.remove(folder / one)
            names = [one for one in names if one not in going]
    return names


def _is_whole(files: Files, path: Path) -> bool:
    with contextlib.closing(files.open(path)) as file:
        end, size_bytes = 0, file.size()
        for position, header in walk_valid_batches(file, size_bytes):
            end = position + header.size_bytes
    return 0 < end == size_bytes


def _end_of_swap(files: Files, folder: Path, base_offset: int) -> int:
    path = folder / (segment_file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX)
    end_offset = base_offset
    with contextlib.closing(files.open(path)) as file:
        for _, header in walk_batches(file, 0, file.size()):
            end_offset = header.next_offset
    return end_offset
