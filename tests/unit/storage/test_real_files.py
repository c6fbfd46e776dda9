"""What the contract suite of the files port cannot see: the machine's own ways."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from moldau.storage import files as files_module
from moldau.storage.files import Files, FileSlice, RealFiles, open_file_budget
from moldau.testing.memory_files import MemoryFiles


@pytest.mark.parametrize("files", [RealFiles(), MemoryFiles()], ids=["real", "memory"])
def test_the_size_of_a_file_is_known_without_opening_it(files: Files, tmp_path: Path):
    files.make_folder(tmp_path)
    path = tmp_path / "a"
    with pytest.raises(FileNotFoundError):
        files.size(path)
    files.replace(path, b"abc")
    assert files.size(path) == 3


def test_half_of_the_open_files_are_left_for_sockets():
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 0 < open_file_budget() <= max(soft_limit // 2, 10_000)


def test_a_volume_without_full_sync_is_synced_as_well_as_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced = []

    def refuse(descriptor: int, command: int) -> int:
        raise OSError(errno.ENOTSUP, "no full sync here")

    monkeypatch.setattr(files_module, "_FULL_SYNC", 51)
    monkeypatch.setattr(files_module.fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "fsync", synced.append)
    file = RealFiles().open(tmp_path / "a", create=True)
    file.sync()
    assert synced == [file.descriptor]


def test_a_write_that_makes_no_progress_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = RealFiles().open(tmp_path / "a", create=True)
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, position: 0)
    with pytest.raises(OSError, match="no more bytes"):
        file.write_at(0, b"abc")


def test_a_slice_keeps_its_file_open(tmp_path: Path):
    files = RealFiles()
    file = files.open(tmp_path / "a", create=True)
    file.write_at(0, b"0123456789")
    piece = FileSlice(file, 2, 3)
    descriptor = file.descriptor
    del file
    files.remove(tmp_path / "a")
    assert piece.descriptor == descriptor
    assert piece.read() == b"234"
    del piece
    assert descriptor is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
