"""Large files go to the disk step by step before a sync, which alone makes them durable."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from moldau.storage import files as files_module
from moldau.storage import files as write_back_module
from moldau.storage.files import STEP_BYTES, RealFile, RealFiles, write_back

_WHOLE = 3 * STEP_BYTES + 5


class Disk:
    """Notes what it is asked to do, and can fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[object] = []
        self.error = 0
        monkeypatch.setattr(files_module, "_FULL_SYNC", None)
        monkeypatch.setattr(write_back_module, "_find_call", lambda: self.take)
        monkeypatch.setattr(os, "fdatasync", lambda _: self.steps.append("sync"), raising=False)

    def take(self, descriptor: int, position: int, length: int) -> int:
        self.steps.append((position, length))
        return self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def sparse(folder: Path, size: int) -> RealFile:
    file = RealFiles().open(folder / "a", create=True)
    file.truncate(size)
    return file


def test_a_sync_of_much_hands_it_over_in_steps_first(disk: Disk, tmp_path: Path) -> None:
    file = sparse(tmp_path, _WHOLE)
    file.sync()
    steps = [(number * STEP_BYTES, STEP_BYTES) for number in range(3)]
    assert disk.steps == [*steps, (3 * STEP_BYTES, 5), "sync"]
    file.sync()
    assert disk.steps[5:] == ["sync"]  # nothing of it is handed over twice


@pytest.mark.parametrize("size", [0, 1, STEP_BYTES])
def test_a_sync_of_little_is_a_sync(disk: Disk, tmp_path: Path, size: int) -> None:
    sparse(tmp_path, size).sync()
    assert disk.steps == ["sync"]


def test_what_was_handed_over_before_is_left_out(disk: Disk, tmp_path: Path) -> None:
    file = sparse(tmp_path, _WHOLE)
    file.write_back(2 * STEP_BYTES)
    file.write_back(STEP_BYTES)
    assert disk.steps == [(0, STEP_BYTES), (STEP_BYTES, STEP_BYTES)]
    file.sync()
    assert disk.steps[2:] == [(2 * STEP_BYTES, STEP_BYTES), (3 * STEP_BYTES, 5), "sync"]


def test_a_file_that_was_cut_off_and_grew_again_is_synced(disk: Disk, tmp_path: Path) -> None:
    file = sparse(tmp_path, _WHOLE)
    file.sync()
    file.truncate(10)
    file.sync()
    file.truncate(STEP_BYTES + 20)
    file.sync()
    assert disk.steps[5:] == ["sync", (10, STEP_BYTES), (10 + STEP_BYTES, 10), "sync"]


def test_a_disk_that_fails_fails_the_sync(disk: Disk, tmp_path: Path) -> None:
    """Linux tells of a failed write once: the sync behind it would succeed."""
    file = sparse(tmp_path, _WHOLE)
    disk.error = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.sync()
    assert disk.steps == [(0, STEP_BYTES)]


@pytest.mark.parametrize(
    "error",
    [errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP, errno.EINTR],
)
def test_a_volume_that_does_not_know_steps_is_synced(
    disk: Disk, tmp_path: Path, error: int
) -> None:
    disk.error = error
    sparse(tmp_path, _WHOLE).sync()
    assert disk.steps[-1] == "sync"


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has sync_file_range")
def test_the_kernel_takes_steps_and_refuses_what_is_no_file(tmp_path: Path) -> None:
    file = sparse(tmp_path, 0)
    file.write_at(0, bytes(100_000))
    file.write_back(100_000)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        write_back(1 << 20, 0, 10)


def test_a_python_without_ctypes_does_without_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    monkeypatch.setattr(write_back_module, "_find_call", write_back_module._find_call.__wrapped__)
    sparse(tmp_path, _WHOLE).sync()
