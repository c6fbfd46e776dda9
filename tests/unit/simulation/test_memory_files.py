"""Crashes and faults of `MemoryFiles`. What every file system does is in tests/contract."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.simulation.memory_files import (
    BLOCK_BYTES,
    SECTOR_BYTES,
    FileOperation,
    MemoryFile,
    MemoryFiles,
)

ROOT = Path("/data")
SEEDS = range(300)


@pytest.fixture
def files() -> MemoryFiles:
    return make_files()


def make_files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_folder(ROOT)
    files.sync_everything()
    return files


def put(files: MemoryFiles, name: str, data: bytes, *, durable: bool = False) -> MemoryFile:
    file = files.open(ROOT / name, create=True)
    file.write_at(0, data)
    if durable:
        file.sync()
        files.sync_folder((ROOT / name).parent)
    return file


# The process dies


def test_a_killed_process_loses_nothing_that_it_wrote(files: MemoryFiles) -> None:
    put(files, "a", b"never synced")
    files.rename(ROOT / "a", ROOT / "b")
    files.crash_process()
    assert files.list_folder(ROOT) == ["b"]
    assert files.read(ROOT / "b") == b"never synced"


@pytest.mark.parametrize("crash", [MemoryFiles.crash_process, MemoryFiles.lose_power])
def test_files_opened_before_a_crash_cannot_be_used_after_it(
    files: MemoryFiles, crash: Callable[[MemoryFiles], None]
) -> None:
    file = put(files, "a", b"abc", durable=True)
    crash(files)
    uses: list[Callable[[], object]] = [
        lambda: file.write_at(0, b"x"),
        lambda: file.read_at(0, 1),
        lambda: file.truncate(0),
        file.size,
        file.sync,
    ]
    for use in uses:
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            use()
    file.close()
    assert files.read(ROOT / "a") == b"abc"
    assert files.open_files == 0


def test_locks_are_free_after_a_crash(files: MemoryFiles) -> None:
    old = files.lock(ROOT / ".lock")
    assert old is not None
    files.crash_process()
    new = files.lock(ROOT / ".lock")
    assert new is not None
    old.release()  # the dead process cannot give away the lock of the living one
    assert files.lock(ROOT / ".lock") is None


# The power goes


def test_without_luck_exactly_what_was_synced_survives(files: MemoryFiles) -> None:
    file = put(files, "a", b"synced", durable=True)
    file.write_at(6, b" and written")
    put(files, "b", b"never synced")
    files.lose_power()
    assert files.list_folder(ROOT) == ["a"]
    assert files.read(ROOT / "a") == b"synced"


@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_survives_with_any_luck(seed: int) -> None:
    files = make_files()
    content = Random(seed).randbytes(20_000)
    file = put(files, "a", content, durable=True)
    file.write_at(20_000, b"x" * 20_000)
    files.lose_power(Random(seed))
    assert files.read(ROOT / "a")[:20_000] == content


def test_an_unsynced_overwrite_may_come_back_old_new_or_torn_by_sectors() -> None:
    fates = set()
    for seed in SEEDS:
        files = make_files()
        put(files, "a", b"o" * BLOCK_BYTES, durable=True).write_at(0, b"n" * BLOCK_BYTES)
        files.lose_power(Random(seed))
        content = files.read(ROOT / "a")
        new = content.count(b"n")
        assert content == b"n" * new + b"o" * (BLOCK_BYTES - new)
        assert new % SECTOR_BYTES == 0
        fates.add("old" if not new else "new" if new == BLOCK_BYTES else "torn")
    assert fates == {"old", "new", "torn"}


def test_an_unsynced_tail_may_be_gone_cut_whole_or_zeros() -> None:
    fates = set()
    for seed in SEEDS:
        files = make_files()
        put(files, "a", b"s" * 5_000, durable=True).write_at(5_000, b"t" * 50_000)
        files.lose_power(Random(seed))
        content = files.read(ROOT / "a")
        assert content[:5_000] == b"s" * 5_000
        tail = content[5_000:]
        assert set(tail) <= set(b"t\0")
        fates.add((len(tail) not in (0, 50_000), b"t" in tail, b"\0" in tail))
    assert (False, True, False) in fates  # all of it
    assert (False, False, False) in fates  # nothing of it
    assert (True, True, False) in fates  # a part
    assert (False, False, True) in fates  # its length, and none of its bytes
    assert (False, True, True) in fates  # its length, and some of its bytes


def test_blocks_survive_in_any_order() -> None:
    """A later write may be there while an earlier one is not."""
    found = False
    for seed in SEEDS:
        files = make_files()
        file = put(files, "a", b"o" * 3 * BLOCK_BYTES, durable=True)
        file.write_at(0, b"n" * BLOCK_BYTES)
        file.write_at(2 * BLOCK_BYTES, b"n" * BLOCK_BYTES)
        files.lose_power(Random(seed))
        content = files.read(ROOT / "a")
        assert content[BLOCK_BYTES : 2 * BLOCK_BYTES] == b"o" * BLOCK_BYTES
        found = found or (content[:1] == b"o" and content[-1:] == b"n")
    assert found


def test_an_unsynced_truncation_may_be_undone() -> None:
    sizes = set()
    for seed in SEEDS:
        files = make_files()
        put(files, "a", b"x" * 10_000, durable=True).truncate(100)
        files.lose_power(Random(seed))
        content = files.read(ROOT / "a")
        assert content == b"x" * len(content)
        sizes.add(len(content))
    assert sizes == {100, 10_000}


def test_a_synced_truncation_stays_and_what_follows_it_is_zeros(files: MemoryFiles) -> None:
    file = put(files, "a", b"x" * 10_000, durable=True)
    file.truncate(100)
    file.truncate(9_000)
    file.sync()
    files.lose_power()
    assert files.read(ROOT / "a") == b"x" * 100 + bytes(8_900)


def test_a_file_whose_folder_was_not_synced_may_be_gone() -> None:
    there = set()
    for seed in SEEDS:
        files = make_files()
        put(files, "a", b"abc").sync()
        files.lose_power(Random(seed))
        there.add(files.exists(ROOT / "a"))
        if files.exists(ROOT / "a"):
            assert files.read(ROOT / "a") == b"abc"
    assert there == {True, False}


def test_an_unsynced_rename_happened_or_did_not() -> None:
    seen = set()
    for seed in SEEDS:
        files = make_files()
        put(files, "old", b"abc", durable=True)
        files.rename(ROOT / "old", ROOT / "new")
        files.lose_power(Random(seed))
        (name,) = files.list_folder(ROOT)  # never both, never none
        assert files.read(ROOT / name) == b"abc"
        seen.add(name)
    assert seen == {"old", "new"}


def test_a_rename_between_folders_happened_or_did_not() -> None:
    seen = set()
    for seed in SEEDS:
        files = make_files()
        files.make_folder(ROOT / "x")
        put(files, "old", b"abc")
        files.sync_everything()
        files.rename(ROOT / "old", ROOT / "x" / "new")
        files.lose_power(Random(seed))
        seen.add((files.exists(ROOT / "old"), files.exists(ROOT / "x" / "new")))
    assert seen == {(True, False), (False, True)}


def test_a_synced_folder_keeps_its_renames_and_removals(files: MemoryFiles) -> None:
    put(files, "a", b"abc", durable=True)
    put(files, "b", b"def", durable=True)
    files.rename(ROOT / "a", ROOT / "c")
    files.remove(ROOT / "b")
    files.sync_folder(ROOT)
    files.lose_power()
    assert files.list_folder(ROOT) == ["c"]


def test_an_unsynced_removal_may_be_undone(files: MemoryFiles) -> None:
    put(files, "a", b"abc", durable=True)
    files.remove(ROOT / "a")
    files.lose_power()
    assert files.read(ROOT / "a") == b"abc"


def test_changes_of_a_folder_survive_in_their_order() -> None:
    for seed in SEEDS:
        files = make_files()
        for number in range(6):
            put(files, str(number), b"").sync()
        files.lose_power(Random(seed))
        names = list(files.list_folder(ROOT))
        assert names == [str(number) for number in range(len(names))]


def test_syncing_one_folder_says_nothing_about_another(files: MemoryFiles) -> None:
    files.make_folder(ROOT / "x")
    files.make_folder(ROOT / "y")
    files.sync_everything()
    put(files, "x/a", b"").sync()
    put(files, "y/a", b"").sync()
    files.sync_folder(ROOT / "x")
    files.lose_power()
    assert files.exists(ROOT / "x" / "a")
    assert not files.exists(ROOT / "y" / "a")


def test_syncing_a_folder_carries_the_other_half_of_a_move() -> None:
    """The file came from a folder in which it was made and not yet durable."""
    for seed in SEEDS:
        files = make_files()
        files.make_folder(ROOT / "x")
        files.make_folder(ROOT / "y")
        files.sync_everything()
        put(files, "x/a", b"abc").sync()
        files.rename(ROOT / "x" / "a", ROOT / "y" / "a")
        files.sync_folder(ROOT / "y")
        files.lose_power(Random(seed))
        assert files.list_folder(ROOT / "x") == []
        assert files.read(ROOT / "y" / "a") == b"abc"


def test_a_folder_that_was_not_synced_into_its_parent_is_gone_with_all_in_it(
    files: MemoryFiles,
) -> None:
    files.make_folder(ROOT / "x")
    put(files, "x/a", b"abc", durable=True)
    files.lose_power()
    assert files.list_folder(ROOT) == []


def test_a_removed_folder_is_partly_there_at_worst() -> None:
    seen = set()
    for seed in SEEDS:
        files = make_files()
        files.make_folder(ROOT / "x")
        for name in "abc":
            put(files, f"x/{name}", b"content")
        files.sync_everything()
        files.remove_folder(ROOT / "x")
        files.lose_power(Random(seed))
        exists = files.exists(ROOT / "x")
        seen.add("".join(files.list_folder(ROOT / "x")) if exists else "gone")
    assert {"abc", "gone"} <= seen <= {"abc", "bc", "c", "", "gone"}
    assert len(seen) > 2


def test_the_same_seed_gives_the_same_disk() -> None:
    def ruin(seed: int) -> list[tuple[str, bytes]]:
        files = make_files()
        for number in range(5):
            file = put(files, str(number), b"x" * 9_000, durable=number % 2 == 0)
            file.write_at(5_000, b"y" * 20_000)
        files.lose_power(Random(seed))
        return [(name, files.read(ROOT / name)) for name in files.list_folder(ROOT)]

    assert [ruin(seed) for seed in range(30)] == [ruin(seed) for seed in range(30)]


def test_life_goes_on_after_a_power_loss(files: MemoryFiles) -> None:
    put(files, "a", b"before", durable=True).write_at(6, b"lost")
    files.lose_power()
    put(files, "a", b"after!", durable=True).write_at(0, b"lost again")
    files.lose_power()
    assert files.read(ROOT / "a") == b"after!"


@pytest.mark.parametrize("steps", range(8))
def test_a_replaced_file_is_old_or_new_wherever_the_power_goes(steps: int) -> None:
    """The power goes after so many steps of `replace`: open, truncate, write, sync, rename, …"""
    for seed in SEEDS:
        files = make_files()
        files.replace(ROOT / "checkpoint", b"old")
        files.fail_next("*", errno.EIO, skip=steps, count=None)
        done = True
        try:
            files.replace(ROOT / "checkpoint", b"new content")
        except OSError:
            done = False
        files.clear_faults()
        files.lose_power(Random(seed))
        allowed = {b"new content"} if done else {b"old", b"new content"}
        assert files.read(ROOT / "checkpoint") in allowed
        assert done == (steps >= 6)


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.binary(min_size=1, max_size=5_000)), max_size=8),
    st.integers(0, 8),
    st.integers(),
)
def test_no_power_loss_invents_bytes(
    writes: list[tuple[int, bytes]], synced_after: int, seed: int
) -> None:
    """Each byte is the one that was synced, or one that was written there later, or a zero."""
    files = make_files()
    file = put(files, "a", b"", durable=True)
    possible: dict[int, set[int]] = {}
    for number, (position, data) in enumerate(writes):
        if number == synced_after:
            file.sync()
            synced = file.read_at(0, 30_000)
            possible = {place: {byte} for place, byte in enumerate(synced)}
        file.write_at(position, data)
        for place, byte in enumerate(data, position):
            possible.setdefault(place, {0}).add(byte)
    longest = file.size()
    files.lose_power(Random(seed))
    content = files.read(ROOT / "a")
    assert len(content) <= longest
    assert all(byte in possible.get(place, {0}) for place, byte in enumerate(content))


# Faults on request


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("open", lambda files: files.open(ROOT / "a")),
        ("open", lambda files: files.read(ROOT / "a")),
        ("read", lambda files: files.read(ROOT / "a")),
        ("read", lambda files: files.open(ROOT / "a").read_at(0, 1)),
        ("write", lambda files: files.open(ROOT / "a").write_at(0, b"x")),
        ("truncate", lambda files: files.open(ROOT / "a").truncate(0)),
        ("sync", lambda files: files.open(ROOT / "a").sync()),
        ("list_folder", lambda files: files.list_folder(ROOT)),
        ("make_folder", lambda files: files.make_folder(ROOT / "b")),
        ("rename", lambda files: files.rename(ROOT / "a", ROOT / "b")),
        ("remove", lambda files: files.remove(ROOT / "a")),
        ("remove", lambda files: files.remove_folder(ROOT)),
        ("sync_folder", lambda files: files.sync_folder(ROOT)),
        ("lock", lambda files: files.lock(ROOT / ".lock")),
    ],
)
def test_every_operation_can_be_made_to_fail_and_then_changes_nothing(
    files: MemoryFiles, operation: FileOperation, act: Callable[[MemoryFiles], object]
) -> None:
    put(files, "a", b"abc", durable=True)
    fault = files.fail_next(operation, errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        act(files)
    assert fault.times_met == 1
    assert files.list_folder(ROOT) == ["a"]
    assert files.read(ROOT / "a") == b"abc"
    act(files)


def test_a_fault_hits_matching_paths_only(files: MemoryFiles) -> None:
    files.fail_next("write", errno.EIO, path_matching="*.index")
    put(files, "0.log", b"fine")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as caught:
        put(files, "0.index", b"not fine")
    assert caught.value.filename == str(ROOT / "0.index")


def test_a_fault_has_the_error_that_was_asked_for(files: MemoryFiles) -> None:
    files.fail_next("open", errno.EACCES)
    with pytest.raises(PermissionError):
        files.open(ROOT / "a", create=True)


def test_a_torn_write_leaves_its_beginning(files: MemoryFiles) -> None:
    file = put(files, "a", b"0123456789")
    files.fail_next("write", errno.EIO, kept_bytes=3)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.write_at(4, b"abcdef")
    assert file.read_at(0, 20) == b"0123abc789"


def test_what_a_failed_sync_should_have_saved_is_never_saved(files: MemoryFiles) -> None:
    """Linux marks the pages clean all the same: trying again proves nothing."""
    file = put(files, "a", b"safe", durable=True)
    file.write_at(4, b" lost")
    files.fail_next("sync")
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.sync()
    assert file.read_at(0, 20) == b"safe lost"
    file.sync()
    files.lose_power()
    assert files.read(ROOT / "a") == b"safe\0\0\0\0\0"


def test_faults_can_be_taken_back(files: MemoryFiles) -> None:
    files.fail_next("open", count=None)
    files.clear_faults()
    files.open(ROOT / "a", create=True)


def test_a_full_disk_takes_what_fits_and_no_more(files: MemoryFiles) -> None:
    file = put(files, "a", b"x" * 60)
    files.set_capacity(100)
    assert files.capacity_bytes(ROOT) == (100, 40)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.write_at(60, b"y" * 50)
    assert file.size() == 100
    assert files.capacity_bytes(ROOT) == (100, 0)
    file.write_at(0, b"z" * 100)  # what is there already needs no room


def test_removing_and_truncating_make_room_again(files: MemoryFiles) -> None:
    files.set_capacity(100)
    file = put(files, "a", b"x" * 100)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        put(files, "b", b"y")
    file.truncate(99)
    put(files, "b", b"y")
    files.remove(ROOT / "a")
    put(files, "c", b"z" * 99)
    assert files.used_bytes() == 100


def test_open_files_are_counted(files: MemoryFiles) -> None:
    first, second = put(files, "a", b""), put(files, "b", b"")
    assert files.open_files == 2
    first.close()
    first.close()
    assert files.open_files == 1
    second.close()
    assert files.open_files == 0
