"""The socket on which a store is served: where it is, and that it is for this user only. A shell.

It is in the store's folder. Where the path is too long for a socket (108 bytes on Linux, 104 on
macOS), or the file system has no sockets, it is in a folder of this user under the temporary one,
named after the store's. Who calls this holds the lock of the store's file, so a socket that is
there already was left by a process that has ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from moldau.errors import StartupError

SOCKET_NAME: Final = "coordination.sock"
_MAX_PATH_BYTES: Final = 100
_ONLY_THIS_USER: Final = 0o177  # what the others, and executing, are denied
_BACKLOG: Final = 64


@contextlib.contextmanager
def listening_beside(folder: Path) -> Iterator[tuple[socket.socket, Path]]:
    """A socket that listens, and its path; both are gone after the block."""
    listener, path = _listen_near(folder.resolve())
    try:
        yield listener, path
    finally:
        listener.close()
        path.unlink(missing_ok=True)


def listen_again(folder: Path, path: Path) -> socket.socket | None:
    """Another socket at `path`, of the store in `folder`, if the one that was there is gone.

    Whoever cleans up old files removes sockets too, above all in a temporary folder. Those that are
    connected stay so, and notice nothing; but nobody finds the store any more.
    """
    if path.exists():
        return None
    if path.parent != folder.resolve():
        _private_folder(folder.resolve())
    return _listen(path)


def _listen_near(folder: Path) -> tuple[socket.socket, Path]:
    path = folder / SOCKET_NAME
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        try:
            return _listen(path), path
        except OSError as error:
            failure: OSError | None = error  # a file system without sockets
    else:
        failure = None
    elsewhere = _private_folder(folder) / SOCKET_NAME
    try:
        return _listen(elsewhere), elsewhere
    except OSError as error:
        first = f"{path}: {failure}; " if failure else ""
        raise StartupError(
            f"no socket can be made for the coordination store ({first}{elsewhere}: {error}); "
            "let TMPDIR name a folder with a short path"
        ) from error


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    former = os.umask(_ONLY_THIS_USER)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(former)
    return listener


def _private_folder(folder: Path) -> Path:
    """One that nobody else may enter: others can make folders of any name beside it."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    private = Path(tempfile.gettempdir()) / f"moldau-{os.getuid()}-{digest}"
    with contextlib.suppress(FileExistsError):
        private.mkdir(mode=0o700)
    found = private.lstat()
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or stat.S_IMODE(found.st_mode) & 0o077
    ):
        raise StartupError(f"{private} is not a folder of this user alone: remove it")
    return private
