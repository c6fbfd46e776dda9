"""The machine's files, with a journal from which a power loss can be played for a real process.

`JournaledFiles` does everything on the real file system, and notes beside it in which order what
was written, renamed, removed and synced. A killed process loses nothing by that, as ever. For a
power loss the process is killed and `PowerSwitch.lose_power` replays the journal on the disk of
`MemoryFiles`, which knows what survives, and puts the outcome in the place of the folder:

    switch = PowerSwitch(data_folder, beside=some_folder)
    ...                                   # a process works on JournaledFiles(switch.journal)
    switch.lose_power(Random(seed))       # it is dead; what it had not synced may be gone, or torn

Nothing is really synced: whoever switches the machine itself off loses more than the journal says.
A sync covers what was written before it began, and counts only if it returned; it takes as long as
one is told to let it take.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from moldau.broker.run import real_ports, run_broker
from moldau.broker.server import BrokerServer
from moldau.cli.reporting import set_up_logging
from moldau.cli.start import gather_settings
from moldau.config.broker_options import BrokerOptions
from moldau.simulation.memory_files import MemoryFile, MemoryFiles
from moldau.storage.files import Buffer, RealFile, RealFiles, RealFolderLock

_PROCESS = "process"


class Journal:
    """Steps in their order: a line of JSON each, and the bytes of a write behind it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._next_number = 0
        self.guard = threading.Lock()  # held while a step is taken and noted
        self.note(_PROCESS)

    def make_number(self) -> int:
        """For an open file or a sync; unique within the process."""
        self._next_number += 1
        return self._next_number

    def note(self, step: str, *operands: object, data: Buffer = b"") -> None:
        line = json.dumps([step, len(data), *operands], separators=(",", ":")).encode()
        os.writev(self._descriptor, (line + b"\n", data))

    def close(self) -> None:
        os.close(self._descriptor)


class JournalStep(NamedTuple):
    """See `Journal`."""

    name: str
    operands: list[Any]  # numbers and paths
    data: bytes


def read_journal(path: Path) -> Iterator[JournalStep]:
    """What a kill has cut off at the end never happened."""
    with path.open("rb") as file:
        while (line := file.readline()).endswith(b"\n"):
            name, size, *operands = json.loads(line)
            data = file.read(size)
            if len(data) < size:
                return
            yield JournalStep(name, operands, data)


class JournaledFile:
    """An open file of `JournaledFiles`."""

    __slots__ = ("_file", "_journal", "_number", "_sync_seconds", "close", "read_at", "size")

    def __init__(self, file: RealFile, journal: Journal, sync_seconds: float) -> None:
        self._file = file
        self.size, self.read_at, self.close = file.size, file.read_at, file.close
        self._journal = journal
        self._number = journal.make_number()
        self._sync_seconds = sync_seconds

    @property
    def number(self) -> int:
        """By which the journal knows it."""
        return self._number

    @property
    def descriptor(self) -> int | None:
        return self._file.descriptor

    def write_at(self, position: int, data: Buffer) -> None:
        with self._journal.guard:
            self._file.write_at(position, data)
            self._journal.note("write", self._number, position, data=data)

    def truncate(self, size: int) -> None:
        with self._journal.guard:
            self._file.truncate(size)
            self._journal.note("truncate", self._number, size)

    def write_back(self, end: int) -> None:
        self.size()  # as below

    def sync(self) -> None:
        self.size()  # raises for a closed file, as a sync does
        with self._journal.guard:
            number = self._journal.make_number()
            self._journal.note("sync", self._number, number)
        time.sleep(self._sync_seconds)
        with self._journal.guard:
            self._journal.note("synced", number)


class JournaledFiles(RealFiles):
    """The machine's file system; see the module."""

    def __init__(self, journal: Path, *, sync_seconds: float = 0.0) -> None:
        self._journal = Journal(journal)
        self._sync_seconds = sync_seconds

    def open(self, path: Path, *, create: bool = False) -> JournaledFile:  # type: ignore[override]
        with self._journal.guard:
            file = JournaledFile(
                super().open(path, create=create), self._journal, self._sync_seconds
            )
            self._journal.note("open", file.number, str(path))
            return file

    def make_folder(self, path: Path) -> None:
        with self._journal.guard:
            super().make_folder(path)
            self._journal.note("make_folder", str(path))

    def rename(self, source: Path, target: Path) -> None:
        with self._journal.guard:
            super().rename(source, target)
            self._journal.note("rename", str(source), str(target))

    def link(self, source: Path, target: Path) -> None:
        with self._journal.guard:
            super().link(source, target)
            self._journal.note("link", str(source), str(target))

    def remove(self, path: Path) -> None:
        with self._journal.guard:
            super().remove(path)
            self._journal.note("remove", str(path))

    def remove_folder(self, path: Path) -> None:
        with self._journal.guard:
            super().remove_folder(path)
            self._journal.note("remove_folder", str(path))

    def replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_folder(path.parent)

    def sync_folder(self, path: Path) -> None:
        with self._journal.guard:
            self.list_folder(path)  # raises where there is none, as a sync does
            number = self._journal.make_number()
            self._journal.note("sync_folder", number, str(path))
        time.sleep(self._sync_seconds)
        with self._journal.guard:
            self._journal.note("synced", number)

    def lock(self, path: Path) -> RealFolderLock | None:
        with self._journal.guard:
            lock = super().lock(path)
            self._journal.note("open", self._journal.make_number(), str(path))
            return lock

    def close(self) -> None:
        self._journal.close()


class PowerSwitch:
    """Of the machine on whose disk a folder is."""

    def __init__(self, folder: Path, beside: Path) -> None:
        self._folder = folder
        self._base = beside / "before"  # what was on the disk when the journal began
        self.journal = beside / "journal"
        self._base.mkdir(parents=True, exist_ok=True)

    def lose_power(self, random: Random | None = None) -> None:
        """The process has to be dead. What was not synced is gone; with a source of chance, some.

        What survived is durable from now on.
        """
        files = MemoryFiles()
        self._load(files)
        _Replay(list(read_journal(self.journal)) if self.journal.exists() else [], files)
        files.lose_power(random)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        _copy_out(files, self._folder, self._folder)
        shutil.rmtree(self._base)
        shutil.copytree(self._folder, self._base)
        self.journal.unlink(missing_ok=True)

    def _load(self, files: MemoryFiles) -> None:
        files.make_folder(self._folder)
        for path in sorted(self._base.rglob("*")):
            target = self._folder / path.relative_to(self._base)
            if path.is_dir():
                files.make_folder(target)
            else:
                files.open(target, create=True).write_at(0, path.read_bytes())
        files.sync_everything()


class _Replay:
    """Does on files in memory what was noted of real ones."""

    def __init__(self, steps: list[JournalStep], files: MemoryFiles) -> None:
        self._files = files
        self._opened: dict[int, MemoryFile] = {}
        self._process = 0
        self._ended = _find_ended_syncs(steps)
        for step in steps:
            self._replay_step(step)

    def _replay_step(self, step: JournalStep) -> None:
        files, operands = self._files, step.operands
        match step.name:
            case "process":
                self._process += 1
                files.crash_process()
                self._opened.clear()
            case "open":
                self._opened[operands[0]] = files.open(Path(operands[1]), create=True)
            case "write" | "truncate" | "sync":
                self._change(step)
            case "sync_folder":
                if self._has_ended(operands[0]):
                    files.sync_folder(Path(operands[1]))
            case "make_folder" | "remove" | "remove_folder" | "rename" | "link":
                getattr(files, step.name)(*map(Path, operands))

    def _change(self, step: JournalStep) -> None:
        number, operand = step.operands
        if step.name == "write":
            self._opened[number].write_at(operand, step.data)
        elif step.name == "truncate":
            self._opened[number].truncate(operand)
        elif self._has_ended(operand):
            self._opened[number].sync()

    def _has_ended(self, sync: int) -> bool:
        return (self._process, sync) in self._ended


def _find_ended_syncs(steps: list[JournalStep]) -> set[tuple[int, int]]:
    """By the process, counted from one, and the number that it gave to the sync."""
    process, ended = 0, set()
    for step in steps:
        process += step.name == _PROCESS
        if step.name == "synced":
            ended.add((process, step.operands[0]))
    return ended


def _copy_out(files: MemoryFiles, source: Path, target: Path) -> None:
    for name in files.peek_folder(source):
        content = files.peek(source / name)
        if content is None:
            (target / name).mkdir()
            _copy_out(files, source / name, target / name)
        else:
            (target / name).write_bytes(content)


# `moldau start` on a machine that can lose its power: `python -m moldau.testing.journaled_broker`.
#
# The same options, and more in front of them: the journal of its files (`JournaledFiles`), how
# long its disk takes for a sync, and a file with the boot id, which changes with each power loss
# and with nothing else. Everything besides files and boot id is as in production.


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--boot-id", type=Path, required=True)
    parser.add_argument("--sync-seconds", type=float, default=0.0)
    parser.add_argument("start", choices=["start"])
    parser.add_argument("--listen")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--broker-id", type=int)
    parser.add_argument("--zookeeper")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    settings = gather_settings(
        config=None,
        sets=given.set,
        data_dir=given.data_dir,
        listen=given.listen,
        broker_id=given.broker_id,
        zookeeper=given.zookeeper,
    )
    set_up_logging()
    boot_id = given.boot_id.read_text(encoding="ascii")
    ports = replace(
        real_ports(options=BrokerOptions.resolve(settings)),
        files=JournaledFiles(given.journal, sync_seconds=given.sync_seconds),
        boot_id=lambda: boot_id,
    )
    asyncio.run(run_broker(settings, _announce, ports))


def _announce(broker: BrokerServer) -> None:
    print(f"listening on {broker.bootstrap}", flush=True)  # noqa: T201 as `moldau start` does


if __name__ == "__main__":
    main()
