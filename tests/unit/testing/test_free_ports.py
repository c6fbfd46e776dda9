"""A port that was taken belongs to one process until it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from moldau.testing import free_ports
from moldau.testing.free_ports import take_port

FIRST, COUNT = 12_000, 1_000
TAKER = f"""
import sys
from pathlib import Path
from moldau.testing import free_ports
free_ports._SHARED_FOLDER = Path(sys.argv[2])  # a book that other test runs do not have
free_ports._FIRST, free_ports._LAST = {FIRST}, {FIRST + COUNT}
sys.stdin.readline()
print(*(free_ports.take_port() for _ in range(int(sys.argv[1]))), flush=True)
sys.stdin.readline()
"""


class Taker:
    """A process that takes so many of a thousand ports and keeps them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKER, str(count), str(folder)],
            env={**os.environ, "TMPDIR": str(folder / "its own")},  # it does not matter
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ports(self) -> list[int]:
        assert self.process.stdout is not None
        return [int(port) for port in self.process.stdout.readline().split()]

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def test_no_port_is_given_to_two_processes_and_those_of_a_dead_one_are_free(tmp_path: Path) -> None:
    takers = [Taker(tmp_path, 400), Taker(tmp_path, 400)]
    try:
        for taker in takers:
            taker.begin()
        ports = [port for taker in takers for port in taker.ports()]
    finally:
        for taker in takers:
            taker.end()
    assert len(ports) == len(set(ports)) == 800
    assert all(FIRST <= port < FIRST + COUNT for port in ports)

    again = Taker(tmp_path, 400)  # more than the others had left
    try:
        again.begin()
        assert len(set(again.ports())) == 400
    finally:
        again.end()


def test_threads_of_one_process_get_different_ports() -> None:
    ports: list[int] = []

    def take() -> None:
        ports.extend(take_port() for _ in range(50))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ports) == len(set(ports)) == 200


def test_ports_that_belong_together_are_taken_together() -> None:
    found = [take_port(1, 2, 100) for _ in range(20)]
    all_ports = {port + above for port in found for above in (0, 1, 2, 100)}
    assert len(all_ports) == 80
    assert take_port() not in all_ports


def test_where_no_port_is_free_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    port = take_port()
    monkeypatch.setattr(free_ports, "_FIRST", port)
    monkeypatch.setattr(free_ports, "_LAST", port + 1)
    with pytest.raises(OSError, match=f"no free port from {port} to {port + 1}"):
        take_port()
