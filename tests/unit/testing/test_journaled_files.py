"""A power loss played from a journal leaves what one of `MemoryFiles` leaves."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.files import Files
from moldau.testing.journaled_broker import JournaledFiles, PowerSwitch


class Machine:
    """A folder on journaled files, with its switch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.switch = PowerSwitch(self.folder, beside=folder / "power")
        self.start()

    def start(self) -> None:
        """A process; the one before it was killed."""
        self.files = JournaledFiles(self.switch.journal)
        self.files.make_folder(self.folder)

    def lose_power(self, random: Random | None = None) -> None:
        self.switch.lose_power(random)
        self.start()

    def content(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file()
        }


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_was_synced_with_its_folder_is_there_and_nothing_else(machine: Machine) -> None:
    files, folder = machine.files, machine.folder
    kept = files.open(folder / "kept", create=True)
    kept.write_at(0, b"synced")
    kept.sync()
    files.sync_folder(folder)
    kept.write_at(6, b" and not")
    files.open(folder / "no name", create=True).sync()
    machine.lose_power()
    assert machine.content() == {"kept": b"synced"}


def test_a_killed_process_loses_nothing(machine: Machine) -> None:
    machine.files.open(machine.folder / "a", create=True).write_at(0, b"written")
    machine.start()
    assert machine.content() == {"a": b"written"}
    again = machine.files.open(machine.folder / "a")
    again.sync()  # by the next process
    machine.files.sync_folder(machine.folder)
    machine.lose_power()
    assert machine.content() == {"a": b"written"}


def test_what_survived_one_power_loss_survives_the_next(machine: Machine) -> None:
    machine.files.replace(machine.folder / "a", b"1")
    machine.lose_power()
    machine.files.replace(machine.folder / "b", b"2")
    machine.lose_power()
    machine.lose_power()
    assert machine.content() == {"a": b"1", "b": b"2"}


def test_a_sync_that_did_not_return_is_none(machine: Machine) -> None:
    machine.files.replace(machine.folder / "a", b"old")
    machine.files.open(machine.folder / "a").write_at(0, b"new")
    machine.files.open(machine.folder / "a").sync()
    steps = machine.switch.journal.read_bytes()
    machine.switch.journal.write_bytes(steps[: steps.rindex(b'["synced"')])
    machine.lose_power()
    assert machine.content() == {"a": b"old"}


def test_a_step_that_was_cut_off_while_it_was_noted_never_happened(machine: Machine) -> None:
    machine.files.replace(machine.folder / "a", b"old")
    machine.files.open(machine.folder / "a").write_at(0, b"new")
    machine.switch.journal.write_bytes(machine.switch.journal.read_bytes()[:-1])
    machine.lose_power()
    assert machine.content() == {"a": b"old"}


NAMES = st.sampled_from(["a", "b", "f/a", "g/b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.binary(max_size=9_000)),
        st.tuples(st.just("truncate"), NAMES, st.integers(0, 9_000)),
        st.tuples(st.sampled_from(["sync", "remove", "sync_folder"]), NAMES, st.none()),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("replace"), NAMES, st.binary(max_size=20)),
        st.tuples(st.just("remove_folder"), st.sampled_from(["f", "g"]), st.none()),
        st.tuples(st.just("rename"), st.sampled_from(["f", "g"]), st.sampled_from(["f", "g"])),
    ),
    max_size=12,
)


def take(files: Files, root: Path, step: str, name: str, operand: object) -> None:
    path = root / name
    with contextlib.suppress(OSError):  # a file that is not there, on both
        if step == "remove":
            files.remove(path)
        elif step == "remove_folder":
            files.remove_folder(path)
        elif step == "rename":
            files.rename(path, root / str(operand))
        elif step == "replace":
            files.make_folder(path.parent)
            files.replace(path, operand)  # type: ignore[arg-type]
        elif step == "sync_folder":
            files.sync_folder(path.parent)
        else:
            files.make_folder(path.parent)
            file = files.open(path, create=True)
            if step == "write":
                file.write_at(3, operand)  # type: ignore[arg-type]
            elif step == "truncate":
                file.truncate(operand)  # type: ignore[arg-type]
            else:
                file.sync()


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS, seed=st.none() | st.integers(0, 1000))
def test_any_steps_leave_what_the_model_leaves(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, str, object]],
    seed: int | None,
) -> None:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    model, root = MemoryFiles(), machine.folder
    model.make_folder(root)
    model.sync_everything()
    for step in steps:
        take(machine.files, root, *step)
        take(model, root, *step)
    model.lose_power(None if seed is None else Random(seed))
    machine.lose_power(None if seed is None else Random(seed))
    for name in {"a", "b", "f/a", "g/b", "f/b", "g/a", "a.tmp", "b.tmp", *machine.content()}:
        assert machine.content().get(name) == model.peek(root / name)
