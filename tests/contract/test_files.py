"""What every file system does, on the machine's own and on the one in memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.simulation.manual_clock import ManualClock
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.files import File, Files, FileSlice, RealFile, RealFiles
from moldau.testing.journaled_broker import JournaledFiles

IMPLEMENTATIONS: dict[str, Callable[[Path], Files]] = {
    "real": lambda _: RealFiles(),
    "memory": lambda _: MemoryFiles(),
    "journaled": lambda folder: JournaledFiles(folder / "journal"),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return IMPLEMENTATIONS[request.param](tmp_path_factory.mktemp("beside"))


@pytest.fixture
def folder(files: Files, tmp_path: Path) -> Path:
    files.make_folder(tmp_path)
    return tmp_path


def put(files: Files, path: Path, data: bytes = b"") -> Path:
    file = files.open(path, create=True)
    file.write_at(0, data)
    file.close()
    return path


def test_a_file_is_told_from_its_copies(files: Files, folder: Path) -> None:
    one, two = put(files, folder / "a", b"same"), put(files, folder / "b", b"same")
    assert files.identify(one) != files.identify(two)
    before = files.identify(one)
    put(files, one, b"other")
    assert files.identify(one) == before
    with pytest.raises(FileNotFoundError):
        files.identify(folder / "absent")


# Open files


def test_what_was_written_is_read_at_its_position(files: Files, folder: Path) -> None:
    file = files.open(folder / "a", create=True)
    file.write_at(0, b"hello world")
    assert file.read_at(6, 5) == b"world"
    assert file.size() == 11


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_bytes_like_value_can_be_written(
    files: Files, folder: Path, wrap: Callable[[bytes], bytes]
) -> None:
    file = files.open(folder / "a", create=True)
    file.write_at(3, wrap(b"xyz"))
    assert file.read_at(0, 10) == b"\0\0\0xyz"


def test_reading_past_the_end_gives_what_there_is(files: Files, folder: Path) -> None:
    file = files.open(put(files, folder / "a", b"12345"))
    assert file.read_at(3, 100) == b"45"
    assert file.read_at(5, 1) == b""
    assert file.read_at(500, 1) == b""
    assert file.read_at(0, 0) == b""


def test_a_write_in_the_middle_changes_only_its_range(files: Files, folder: Path) -> None:
    file = files.open(put(files, folder / "a", b"0123456789"))
    file.write_at(3, b"abc")
    assert file.read_at(0, 20) == b"012abc6789"


def test_writing_nothing_changes_nothing(files: Files, folder: Path) -> None:
    file = files.open(put(files, folder / "a", b"abc"))
    file.write_at(100, b"")
    assert file.size() == 3


def test_a_write_past_the_end_leaves_zeros_between(files: Files, folder: Path) -> None:
    file = files.open(put(files, folder / "a", b"ab"))
    file.write_at(10_000, b"c")
    assert file.size() == 10_001
    assert file.read_at(0, 10_001) == b"ab" + bytes(9_998) + b"c"


def test_truncating_cuts_and_grows_with_zeros(files: Files, folder: Path) -> None:
    file = files.open(put(files, folder / "a", b"abcdef"))
    file.truncate(2)
    assert (file.size(), file.read_at(0, 10)) == (2, b"ab")
    file.truncate(5)
    assert (file.size(), file.read_at(0, 10)) == (5, b"ab\0\0\0")


def test_large_content_comes_back_whole(files: Files, folder: Path) -> None:
    content = bytes(range(256)) * 16_384  # 4 MiB
    file = files.open(folder / "a", create=True)
    file.write_at(7, content)
    assert file.read_at(7, len(content)) == content


def test_a_sync_changes_nothing_for_readers(files: Files, folder: Path) -> None:
    file = files.open(put(files, folder / "a", b"abc"))
    file.sync()
    assert file.read_at(0, 3) == b"abc"


def test_what_the_disk_has_taken_is_not_durable_by_that() -> None:
    files = MemoryFiles()
    file = files.open(put(files, Path("/a"), b"abc"))
    file.write_back(3)
    files.lose_power()
    assert not files.exists(Path("/a"))


def test_two_handles_of_one_file_see_the_same(files: Files, folder: Path) -> None:
    writer = files.open(folder / "a", create=True)
    reader = files.open(folder / "a")
    writer.write_at(0, b"shared")
    assert reader.read_at(0, 6) == b"shared"


def test_opening_with_create_keeps_what_is_there(files: Files, folder: Path) -> None:
    put(files, folder / "a", b"kept")
    assert files.open(folder / "a", create=True).read_at(0, 4) == b"kept"


def test_opening_an_absent_file_without_create_fails(files: Files, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(folder / "a")
    assert not files.exists(folder / "a")


def test_opening_in_an_absent_folder_fails(files: Files, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(folder / "absent" / "a", create=True)


def test_opening_a_folder_fails(files: Files, folder: Path) -> None:
    with pytest.raises(IsADirectoryError):
        files.open(folder)
    with pytest.raises(IsADirectoryError):
        files.open(folder, create=True)


def test_opening_below_a_file_fails(files: Files, folder: Path) -> None:
    put(files, folder / "a")
    with pytest.raises(NotADirectoryError):
        files.open(folder / "a" / "b", create=True)


def test_a_renamed_file_stays_open(files: Files, folder: Path) -> None:
    file = files.open(put(files, folder / "a", b"abc"))
    files.rename(folder / "a", folder / "b")
    file.write_at(3, b"def")
    assert file.read_at(0, 6) == b"abcdef"
    assert files.read(folder / "b") == b"abcdef"


def test_a_removed_file_is_readable_while_it_is_open(files: Files, folder: Path) -> None:
    file = files.open(put(files, folder / "a", b"abc"))
    files.remove(folder / "a")
    put(files, folder / "a", b"another")
    assert file.read_at(0, 10) == b"abc"


def test_a_slice_keeps_its_file_open(files: Files, folder: Path) -> None:
    def cut() -> FileSlice:
        return FileSlice(files.open(put(files, folder / "a", b"0123456789")), 2, 5)

    piece = cut()
    files.remove(folder / "a")
    assert piece.read() == b"23456"


@pytest.mark.parametrize(
    "use",
    [
        lambda file: file.size(),
        lambda file: file.read_at(0, 1),
        lambda file: file.write_at(0, b"x"),
        lambda file: file.truncate(0),
        lambda file: file.sync(),
        lambda file: file.write_back(3),
    ],
    ids=["size", "read_at", "write_at", "truncate", "sync", "write_back"],
)
def test_a_closed_file_cannot_be_used(
    files: Files, folder: Path, use: Callable[[File], object]
) -> None:
    file = files.open(put(files, folder / "a", b"abc"))
    file.close()
    file.close()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        use(file)
    assert files.read(folder / "a") == b"abc"


def test_a_real_file_is_closed_when_its_last_reference_goes(tmp_path: Path) -> None:
    file = RealFiles().open(tmp_path / "a", create=True)
    descriptor = file.descriptor
    assert descriptor is not None
    os.fstat(descriptor)
    del file
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptor)


def test_a_memory_file_is_closed_when_its_last_reference_goes() -> None:
    files = MemoryFiles()
    file = files.open(Path("a"), create=True)
    assert file.descriptor is None
    assert files.open_files == 1
    del file
    assert files.open_files == 0


def test_closing_a_real_file_does_not_close_the_next_one_of_the_same_number(
    tmp_path: Path,
) -> None:
    files = RealFiles()
    first = files.open(tmp_path / "a", create=True)
    first.close()
    second = files.open(tmp_path / "b", create=True)
    first.close()
    del first
    second.write_at(0, b"still open")
    assert second.size() == 10


# Names


def test_a_file_exists_once_it_was_made(files: Files, folder: Path) -> None:
    assert not files.exists(folder / "a")
    put(files, folder / "a")
    assert files.exists(folder / "a")
    assert files.exists(folder)
    assert not files.exists(folder / "a" / "below a file")


def test_a_path_that_cannot_be_looked_at_does_not_count_as_absent(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (loop, loop / "00000000000000000000.log", tmp_path / ("x" * 300)):
        with pytest.raises(OSError, match=r"symbolic links|too long"):
            RealFiles().exists(path)


def test_a_size_is_read_without_opening(files: Files, folder: Path) -> None:
    put(files, folder / "a", b"12345")
    assert files.size(folder / "a") == 5
    with pytest.raises(FileNotFoundError):
        files.size(folder / "b")


def test_a_folder_lists_its_names_sorted(files: Files, folder: Path) -> None:
    for name in ("b", "a", "c"):
        put(files, folder / name)
    files.make_folder(folder / "bb")
    assert list(files.list_folder(folder)) == ["a", "b", "bb", "c"]


def test_listing_what_is_no_folder_fails(files: Files, folder: Path) -> None:
    put(files, folder / "a")
    with pytest.raises(FileNotFoundError):
        files.list_folder(folder / "absent")
    with pytest.raises(NotADirectoryError):
        files.list_folder(folder / "a")


def test_a_folder_is_made_with_its_parents_and_only_once(files: Files, folder: Path) -> None:
    files.make_folder(folder / "x" / "y" / "z")
    put(files, folder / "x" / "y" / "kept")
    files.make_folder(folder / "x" / "y" / "z")
    assert list(files.list_folder(folder / "x" / "y")) == ["kept", "z"]


def test_a_folder_is_not_made_over_or_below_a_file(files: Files, folder: Path) -> None:
    put(files, folder / "a", b"abc")
    with pytest.raises(FileExistsError):
        files.make_folder(folder / "a")
    with pytest.raises(NotADirectoryError):
        files.make_folder(folder / "a" / "b")
    assert files.read(folder / "a") == b"abc"


def test_a_rename_replaces_the_target_file(files: Files, folder: Path) -> None:
    put(files, folder / "a", b"new")
    put(files, folder / "b", b"old")
    files.rename(folder / "a", folder / "b")
    assert list(files.list_folder(folder)) == ["b"]
    assert files.read(folder / "b") == b"new"


def test_a_rename_moves_between_folders(files: Files, folder: Path) -> None:
    files.make_folder(folder / "x")
    put(files, folder / "a", b"abc")
    files.rename(folder / "a", folder / "x" / "b")
    assert list(files.list_folder(folder)) == ["x"]
    assert files.read(folder / "x" / "b") == b"abc"


def test_a_folder_is_renamed_with_all_in_it(files: Files, folder: Path) -> None:
    files.make_folder(folder / "old" / "inner")
    file = files.open(put(files, folder / "old" / "inner" / "a", b"abc"))
    files.rename(folder / "old", folder / "new")
    file.write_at(3, b"d")
    assert not files.exists(folder / "old")
    assert files.read(folder / "new" / "inner" / "a") == b"abcd"


def test_a_rename_to_itself_does_nothing(files: Files, folder: Path) -> None:
    put(files, folder / "a", b"abc")
    files.rename(folder / "a", folder / "a")
    assert files.read(folder / "a") == b"abc"


def test_renames_that_cannot_be_done_change_nothing(files: Files, folder: Path) -> None:
    put(files, folder / "file", b"abc")
    files.make_folder(folder / "full")
    put(files, folder / "full" / "a")
    files.make_folder(folder / "other")
    with pytest.raises(FileNotFoundError):
        files.rename(folder / "absent", folder / "b")
    with pytest.raises(FileNotFoundError):
        files.rename(folder / "file", folder / "absent" / "b")
    with pytest.raises(IsADirectoryError):
        files.rename(folder / "file", folder / "full")
    with pytest.raises(NotADirectoryError):
        files.rename(folder / "full", folder / "file")
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        files.rename(folder / "other", folder / "full")
    assert list(files.list_folder(folder)) == ["file", "full", "other"]
    assert list(files.list_folder(folder / "full")) == ["a"]


def test_a_folder_replaces_an_empty_folder(files: Files, folder: Path) -> None:
    files.make_folder(folder / "empty")
    files.make_folder(folder / "full")
    put(files, folder / "full" / "a")
    files.rename(folder / "full", folder / "empty")
    assert list(files.list_folder(folder / "empty")) == ["a"]


def test_a_folder_is_not_moved_into_itself(files: Files, folder: Path) -> None:
    files.make_folder(folder / "a" / "b")
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        files.rename(folder / "a", folder / "a" / "b" / "c")
    assert files.exists(folder / "a" / "b")


def test_a_file_is_removed_and_may_be_absent(files: Files, folder: Path) -> None:
    put(files, folder / "a")
    files.remove(folder / "a")
    files.remove(folder / "a")
    files.remove(folder / "absent" / "a")
    assert not files.exists(folder / "a")


def test_a_folder_is_not_removed_as_a_file(files: Files, folder: Path) -> None:
    files.make_folder(folder / "x")
    with pytest.raises(OSError, match=r".+"):  # EISDIR on Linux, EPERM on macOS
        files.remove(folder / "x")
    assert files.exists(folder / "x")


def test_a_folder_is_removed_with_all_in_it_and_may_be_absent(files: Files, folder: Path) -> None:
    files.make_folder(folder / "x" / "y")
    put(files, folder / "x" / "a")
    put(files, folder / "x" / "y" / "b")
    put(files, folder / "kept")
    files.remove_folder(folder / "x")
    files.remove_folder(folder / "x")
    assert list(files.list_folder(folder)) == ["kept"]


def test_a_file_is_not_removed_as_a_folder(files: Files, folder: Path) -> None:
    put(files, folder / "a", b"abc")
    with pytest.raises(NotADirectoryError):
        files.remove_folder(folder / "a")
    assert files.read(folder / "a") == b"abc"


# Whole files


def test_a_whole_file_is_read(files: Files, folder: Path) -> None:
    assert files.read(put(files, folder / "a", b"all of it")) == b"all of it"
    with pytest.raises(FileNotFoundError):
        files.read(folder / "absent")
    with pytest.raises(IsADirectoryError):
        files.read(folder)


@pytest.mark.parametrize("old", [None, b"short", b"something much longer than before"])
def test_a_replaced_file_has_exactly_the_new_content(
    files: Files, folder: Path, old: bytes | None
) -> None:
    if old is not None:
        put(files, folder / "a", old)
    files.replace(folder / "a", b"new content")
    assert files.read(folder / "a") == b"new content"
    assert list(files.list_folder(folder)) == ["a"]


def test_what_an_earlier_failed_replace_left_does_not_disturb(files: Files, folder: Path) -> None:
    put(files, folder / "a.tmp", b"the rest of an attempt that was longer than the next")
    files.replace(folder / "a", b"new")
    assert files.read(folder / "a") == b"new"
    assert list(files.list_folder(folder)) == ["a"]


def test_a_real_replace_syncs_the_content_then_renames_then_syncs_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it survives a power loss cannot be seen here; `MemoryFiles` shows that it does."""
    steps: list[str] = []
    monkeypatch.setattr(
        RealFile, "sync", lambda _: steps.append(f"sync beside {RealFiles().list_folder(tmp_path)}")
    )
    monkeypatch.setattr(
        RealFiles,
        "sync_folder",
        lambda _, path: steps.append(f"folder with {RealFiles().list_folder(path)}"),
    )
    RealFiles().replace(tmp_path / "a", b"new")
    assert steps == ["sync beside ['a.tmp']", "folder with ['a']"]


def test_a_reader_keeps_the_old_content_of_a_replaced_file(files: Files, folder: Path) -> None:
    reader = files.open(put(files, folder / "a", b"old"))
    files.replace(folder / "a", b"new content")
    assert reader.read_at(0, 100) == b"old"


def test_replacing_in_an_absent_folder_fails(files: Files, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.replace(folder / "absent" / "a", b"x")


def test_a_failed_replace_leaves_the_target_as_it_was(files: Files, folder: Path) -> None:
    files.make_folder(folder / "a")
    with pytest.raises(IsADirectoryError):
        files.replace(folder / "a", b"x")
    assert list(files.list_folder(folder / "a")) == []


def test_a_folder_can_be_synced(files: Files, folder: Path) -> None:
    put(files, folder / "a")
    files.sync_folder(folder)
    with pytest.raises(FileNotFoundError):
        files.sync_folder(folder / "absent")


def test_the_time_of_the_last_write_is_known(files: Files, folder: Path) -> None:
    put(files, folder / "a", b"1")
    first = files.modified_ms(folder / "a")
    file = files.open(folder / "a")
    file.write_at(1, b"2")
    assert files.modified_ms(folder / "a") >= first > 1_600_000_000_000
    with pytest.raises(FileNotFoundError):
        files.modified_ms(folder / "absent")


def test_the_time_of_a_write_is_the_clocks() -> None:
    clock = ManualClock(start_ms=1_000)
    files = MemoryFiles(clock)
    file = files.open(Path("a"), create=True)
    clock.jump(5)
    file.write_at(0, b"x")
    assert files.modified_ms(Path("a")) == 6_000


def test_reading_and_syncing_are_no_writes() -> None:
    clock = ManualClock(start_ms=1_000)
    files = MemoryFiles(clock)
    put(files, Path("a"), b"x")
    clock.jump(5)
    file = files.open(Path("a"), create=True)
    file.read_at(0, 1)
    file.sync()
    assert files.modified_ms(Path("a")) == 1_000


def test_the_capacity_is_known(files: Files, folder: Path) -> None:
    total, usable = files.capacity_bytes(folder)
    assert 0 <= usable <= total
    assert total > 0
    with pytest.raises(FileNotFoundError):
        files.capacity_bytes(folder / "absent")


# Locks


def test_a_lock_is_given_once_and_again_after_its_release(files: Files, folder: Path) -> None:
    first = files.lock(folder / ".lock")
    assert first is not None
    assert files.lock(folder / ".lock") is None
    assert files.lock(folder / ".lock") is None
    first.release()
    second = files.lock(folder / ".lock")
    assert second is not None
    second.release()


def test_releasing_a_lock_twice_does_not_take_it_from_the_next(files: Files, folder: Path) -> None:
    first = files.lock(folder / ".lock")
    assert first is not None
    first.release()
    second = files.lock(folder / ".lock")
    assert second is not None
    first.release()
    assert files.lock(folder / ".lock") is None
    second.release()


def test_a_lock_is_held_also_when_nobody_keeps_it(files: Files, folder: Path) -> None:
    lock = files.lock(folder / ".lock")
    assert lock is not None
    del lock
    assert files.lock(folder / ".lock") is None


def test_locks_of_different_folders_are_independent(files: Files, folder: Path) -> None:
    files.make_folder(folder / "x")
    locks = [files.lock(folder / ".lock"), files.lock(folder / "x" / ".lock")]
    assert None not in locks
    for lock in locks:
        assert lock is not None
        lock.release()


def test_the_lock_file_stays_and_its_content_too(files: Files, folder: Path) -> None:
    put(files, folder / ".lock", b"whatever")
    lock = files.lock(folder / ".lock")
    assert lock is not None
    lock.release()
    assert files.read(folder / ".lock") == b"whatever"


def test_a_lock_in_an_absent_folder_fails(files: Files, folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.lock(folder / "absent" / ".lock")


def test_a_real_lock_is_refused_to_another_view_of_the_same_files(tmp_path: Path) -> None:
    lock = RealFiles().lock(tmp_path / ".lock")
    assert lock is not None
    assert RealFiles().lock(tmp_path / ".lock") is None
    lock.release()


# Both against a model

EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 9_000), st.binary(max_size=300)),
        st.tuples(st.just("truncate"), st.integers(0, 9_000), st.just(b"")),
        st.tuples(st.sampled_from(["sync", "write back"]), st.integers(0, 9_000), st.just(b"")),
    ),
    max_size=12,
)


@settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(edits=EDITS)
def test_any_edits_give_what_a_byte_array_gives(
    files: Files, folder: Path, edits: list[tuple[str, int, bytes]]
) -> None:
    files.remove(folder / "a")
    file = files.open(folder / "a", create=True)
    model = bytearray()
    for operation, position, data in edits:
        if operation == "write":
            file.write_at(position, data)
            if data:
                model.extend(bytes(max(0, position - len(model))))
                model[position : position + len(data)] = data
        elif operation == "truncate":
            file.truncate(position)
            model = (model + bytes(position))[:position] if position else bytearray()
        elif operation == "sync":
            file.sync()
        else:
            file.write_back(position)
    assert file.read_at(0, 20_000) == bytes(model)
    assert file.size() == files.size(folder / "a") == len(model)
    file.close()


# Second names


def test_a_linked_file_is_the_same_bytes_until_one_name_goes(files: Files, folder: Path) -> None:
    put(files, folder / "a", b"shared")
    files.link(folder / "a", folder / "b")
    assert files.link_count(folder / "a") == files.link_count(folder / "b") == 2
    files.open(folder / "b").write_at(0, b"S")
    assert files.read(folder / "a") == b"Shared"
    files.remove(folder / "a")
    assert files.link_count(folder / "b") == 1
    assert files.read(folder / "b") == b"Shared"


def test_a_link_takes_no_name_that_is_taken_and_needs_a_file(files: Files, folder: Path) -> None:
    put(files, folder / "a", b"1")
    put(files, folder / "b", b"2")
    with pytest.raises(FileExistsError):
        files.link(folder / "a", folder / "b")
    with pytest.raises(FileNotFoundError):
        files.link(folder / "c", folder / "d")
    with pytest.raises(FileNotFoundError):
        files.link_count(folder / "c")
    assert files.read(folder / "b") == b"2"
