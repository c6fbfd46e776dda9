"""Where `moldau consume` prints: stdout, and whoever reads it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import stat
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from queue import SimpleQueue

_LAST_SECONDS = 1.0
"""How long a command that is to end waits for whoever reads what it prints."""


class RecordOutput:
    """stdout. A pipe or a terminal may keep a writer waiting, so that a thread writes to those: the
    consumer goes on meanwhile, as a member of its group, and hears of Ctrl-C.

    The thread is a daemon, and uses the descriptor alone: a command can end while it waits.
    """

    def __init__(self) -> None:
        self._descriptor = _find_descriptor_that_waits()
        self._pieces: SimpleQueue[tuple[bytes, Future[None]]] = SimpleQueue()
        if self._descriptor is not None:
            writer = threading.Thread(
                target=self._write_pieces, args=(self._descriptor,), name="stdout", daemon=True
            )
            writer.start()

    async def write(self, data: bytes) -> None:
        """Over when all is written."""
        if self._descriptor is None:
            out = sys.stdout.buffer
            out.write(data)
            out.flush()
        else:
            written: Future[None] = Future()
            self._pieces.put((data, written))
            try:
                await asyncio.wrap_future(written)
            except asyncio.CancelledError:
                await self._finish_soon(written)

    async def _finish_soon(self, written: Future[None]) -> None:
        """The command is to end. What is printed by now, or in a moment, counts as printed: the
        next one to wait is cancelled then."""
        late = asyncio.wrap_future(written)
        late.add_done_callback(_ignore_failure)
        await asyncio.wait([late], timeout=_LAST_SECONDS)
        if not late.done() or late.cancelled() or late.exception() is not None:
            raise asyncio.CancelledError
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
            task.cancel()

    @contextlib.asynccontextmanager
    async def while_it_is_read(self) -> AsyncIterator[None]:
        """What is done within ends with BrokenPipeError when the reader of a pipe has gone, though
        there is nothing to write that would tell: `head -1` has enough after the first record."""
        task = asyncio.current_task()
        if self._descriptor is None or os.isatty(self._descriptor) or task is None:
            yield
            return
        loop = asyncio.get_running_loop()
        is_over = has_gone = False

        def end() -> None:
            nonlocal has_gone
            if not is_over:
                has_gone = True
                task.cancel()

        def watch(descriptor: int) -> None:
            poll = select.poll()
            poll.register(descriptor, 0)  # errors are told in any case
            if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll()):
                with contextlib.suppress(RuntimeError):  # the command has ended meanwhile
                    loop.call_soon_threadsafe(end)

        threading.Thread(target=watch, args=(self._descriptor,), daemon=True).start()
        try:
            yield
            if has_gone:
                await asyncio.sleep(0)  # what was cancelled hears of it here, at the latest
        except asyncio.CancelledError:
            if has_gone and not task.uncancel():
                raise BrokenPipeError from None
            raise
        finally:
            is_over = True

    def _write_pieces(self, descriptor: int) -> None:
        while True:
            data, written = self._pieces.get()
            if not written.set_running_or_notify_cancel():
                continue
            left = memoryview(data)
            try:
                while left:
                    left = left[os.write(descriptor, left) :]
            except OSError as error:  # the reader has gone
                written.set_exception(error)
            else:
                written.set_result(None)


def _ignore_failure(written: asyncio.Future[None]) -> None:
    """Nobody waits for it any more."""
    if not written.cancelled():
        written.exception()


def _find_descriptor_that_waits() -> int | None:
    """That of stdout, unless it is a file, or nothing of the system's."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return None
    mode = os.fstat(descriptor).st_mode
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
    return descriptor if waits else None
