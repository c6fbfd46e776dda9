"""What the contract suite of the files port cannot see: the machine's own ways."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path

import pytest

from moldau.simulation.memory_files import MemoryFiles
from moldau.storage import files as files_module
from moldau.storage.files import Files, FileSlice, RealFiles, open_file_budget


@pytest.mark.parametrize("files", [RealFiles(), MemoryFiles()], ids=["real", "memory"])
def test_the_size_of_a_file_is_known_without_opening_it(files: Files, tmp_path: Path):
    files.make_folder(tmp_path)
    path = tmp_path / "a"
    with pytest.raises(FileNotFoundError):
        files.size(path)
    files.replace(path, b"abc")
    assert files.size(path) == 3


def test_a_new_folder_is_for_its_owner_and_a_former_one_keeps_its_mode(tmp_path: Path):
    for name in ("new", "former"):
        if name == "former":
            (tmp_path / name).mkdir()
            (tmp_path / name).chmod(0o755)
        RealFiles().make_folder(tmp_path / name)
    modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
    assert modes == {"new": 0o700, "former": 0o755}


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


def test_a_folder_that_is_a_link_goes_with_what_it_links_to(tmp_path: Path):
    """People put the folder of a large partition on another disk."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"x")
    (tmp_path / "clicks-0").symlink_to(tmp_path / "elsewhere")
    files = RealFiles()
    files.rename(tmp_path / "clicks-0", tmp_path / "clicks-0.0-delete")

    files.remove_folder(tmp_path / "clicks-0.0-delete")
    files.remove_folder(tmp_path / "clicks-0.0-delete")

    assert list(tmp_path.iterdir()) == []


def test_who_removes_a_folder_at_the_same_time_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "clicks-0.0-delete"
    folder.mkdir()
    (folder / "file").write_bytes(b"x")
    remove = shutil.rmtree

    def be_late(path: Path) -> None:
        monkeypatch.setattr(shutil, "rmtree", remove)
        remove(path)
        raise FileNotFoundError(path)

    monkeypatch.setattr(shutil, "rmtree", be_late)
    RealFiles().remove_folder(folder)
    assert not folder.exists()
