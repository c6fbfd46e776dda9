"""Keeps the history over restarts: `history.json` in the first data folder.

It is written once a minute when there is news, and when the broker stops. Nothing depends on it; a
file that cannot be read or written is passed over. A shell.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from moldau.clock import Clock
from moldau.metrics.history import History, decode_events, encode_events
from moldau.storage.files import Files
from moldau.workers import Workers

_log = logging.getLogger("moldau.metrics")

FILE_NAME: Final = "history.json"
INTERVAL_SECONDS: Final = 60.0


class HistoryFile:
    """One task runs `run`."""

    def __init__(
        self, folder: Path, history: History, *, files: Files, clock: Clock, workers: Workers
    ) -> None:
        self._path = folder / FILE_NAME
        self._history = history
        self._files = files
        self._clock = clock
        self._workers = workers
        self._written = 0  # how many events had been noted then

    async def load(self) -> None:
        """Before anything else is noted."""
        try:
            data = await self._workers.run(self._read)
            self._history.restore(decode_events(data.decode()) if data else ())
        except (OSError, ValueError) as error:
            _log.info("%s is passed over: %s", self._path, error)

    def _read(self) -> bytes:
        return self._files.read(self._path) if self._files.exists(self._path) else b""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL_SECONDS)
            await self.write()

    async def write(self) -> None:
        if self._written == self._history.noted:
            return
        noted, data = self._history.noted, encode_events(self._history.find()).encode()
        try:
            await self._workers.run(lambda: self._files.replace(self._path, data))
            self._written = noted
        except OSError as error:
            _log.info("the history is not written to %s: %s", self._path, error)
