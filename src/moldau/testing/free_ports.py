"""Ports that belong to one process, whoever else on this machine looks for one at the same time.

Between the choice of a port and the start of a server on it, and while a broker is down that comes
back on the same one, nobody listens there: to look which ports are free is not enough. So whoever
takes a port says so before: it locks the byte of that number in a file that all processes share.
The system unlocks it when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_HOST: Final = "127.0.0.1"
_SHARED_FOLDER: Final = Path("/tmp")  # noqa: S108 that of all processes, whatever their TMPDIR
_BOOK: Final = "moldau-ports"
_FIRST: Final = 12_000
_LAST: Final = 30_000
"""Below those that systems give to connections (Linux from 32768, others from 49152): a client that
tries in vain to reach a port of that range can end up connected to itself, and takes it away."""
_ATTEMPTS: Final = 100_000

_chance: Final = random.SystemRandom()  # others seed the common one, in each process alike
_taking: Final = threading.Lock()
_taken: Final[set[int]] = set()  # locks hold off other processes only, not the threads of this one
_book: int | None = None  # never closed: that would give up all locks at once


def take_port(*above: int) -> int:
    """A port of the loopback interface that nobody listens on, with those so far `above` it; they
    belong to this process until it ends.

    Raises OSError where there are none.
    """
    with _taking:
        for _ in range(_ATTEMPTS):
            port = _chance.randrange(_FIRST, _LAST)
            if _take_all([port, *(port + distance for distance in above)]):
                return port
    raise OSError(f"no free port from {_FIRST} to {_LAST} on {_HOST}")


def _take_all(ports: Sequence[int]) -> bool:
    """All of them or none."""
    if not _taken.isdisjoint(ports):
        return False
    locked = []
    for port in ports:
        if not _lock(port):
            break
        locked.append(port)
        if not _is_free(port):
            break
    else:
        _taken.update(ports)
        return True
    for port in locked:
        fcntl.lockf(_open_book(), fcntl.LOCK_UN, 1, port)
    return False


def _lock(port: int) -> bool:
    try:
        fcntl.lockf(_open_book(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):  # systems differ in how they say it
        return False
    return True


def _is_free(port: int) -> bool:
    """Of what knows nothing of the book."""
    with contextlib.closing(socket.socket()) as probe:
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
        return True


def _open_book() -> int:
    global _book
    if _book is None:
        shared = os.access(_SHARED_FOLDER, os.R_OK | os.W_OK | os.X_OK)
        path = (_SHARED_FOLDER if shared else Path(tempfile.gettempdir())) / _BOOK
        flags = os.O_RDWR | os.O_NOFOLLOW
        try:
            _book = os.open(path, flags)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # another process was first
                made = os.open(path, flags | os.O_CREAT | os.O_EXCL)
                os.fchmod(made, 0o666)  # for the processes of other users, too
                os.close(made)
            _book = os.open(path, flags)
        os.utime(_book)  # so that nobody who tidies up takes it for old
    return _book
