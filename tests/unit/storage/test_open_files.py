"""The bounded set of open log files."""

from __future__ import annotations

import errno
from pathlib import Path

from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.files import File, OpenFiles


class Holder:
    def __init__(self) -> None:
        self.file: File | None = None
        self.recently_used = False


def opened(count: int, limit: int) -> tuple[MemoryFiles, OpenFiles, list[Holder]]:
    files = MemoryFiles()
    for name in (*map(str, range(count)), "new"):
        files.replace(Path(name), b"")
    open_files = OpenFiles(files, limit)
    holders = [Holder() for _ in range(count)]
    for number, holder in enumerate(holders):
        open_files.open(holder, Path(f"{number}"))
        holder.recently_used = False
    return files, open_files, holders


def test_no_more_files_are_open_than_the_limit():
    files, open_files, holders = opened(10, limit=3)
    assert len(open_files) == 3
    assert files.open_files == 3
    assert [holder.file is not None for holder in holders] == [False] * 7 + [True] * 3


def test_the_one_in_use_stays():
    _, open_files, holders = opened(3, limit=3)
    holders[0].recently_used = True
    open_files.open(Holder(), Path("new"))
    assert holders[0].file is not None
    assert holders[1].file is None


def test_when_all_are_in_use_one_goes_nevertheless():
    _, open_files, holders = opened(3, limit=3)
    for holder in holders:
        holder.recently_used = True
    open_files.open(Holder(), Path("new"))
    assert sum(holder.file is not None for holder in holders) == 2


def test_a_file_that_is_open_is_not_opened_again():
    files, open_files, holders = opened(1, limit=3)
    assert open_files.open(holders[0], Path("0")) is holders[0].file
    assert files.open_files == 1


def test_whoever_still_sends_from_a_file_keeps_it():
    files, open_files, holders = opened(1, limit=3)
    kept = holders[0].file
    assert kept is not None
    kept.write_at(0, b"abc")
    open_files.let_go(holders[0])
    assert len(open_files) == 0
    assert kept.read_at(0, 3) == b"abc"
    del kept
    assert files.open_files == 0


def test_where_the_process_may_open_no_more_idle_files_are_closed_first():
    files, open_files, holders = opened(6, limit=100)
    files.fail_next("open", errno.EMFILE)
    open_files.open(Holder(), Path("new"))
    assert [holder.file is not None for holder in holders] == [False] * 3 + [True] * 3
