"""A TLS context that follows its files and options, while connections use it. A shell.

Certificates end, and nobody wants to stop a broker for a new one: a context is made again when a
file or a setting has changed. One that cannot be made leaves the former in use, and says so once.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from moldau.config.declarations.security import TlsOptions
from moldau.errors import ConfigurationError, InvariantViolation, MissingExtraError
from moldau.security.tls import files_of
from moldau.workers import Workers

O = TypeVar("O", bound=TlsOptions)  # noqa: E741

_log = logging.getLogger("moldau.security")

_State = tuple[object, ...]


class WatchedContext(Generic[O]):
    """`load` once, then `refresh` now and then. Owned by the event loop."""

    def __init__(
        self,
        name: str,
        find_options: Callable[[], O],
        make: Callable[[O], ssl.SSLContext],
        workers: Workers,
    ) -> None:
        self._name = name
        self._find_options = find_options
        self._make = make
        self._workers = workers
        self._context: ssl.SSLContext | None = None
        self._state: _State = ()  # of what the context was made of
        self._failed: _State = ()  # of what none could be made of

    @property
    def context(self) -> ssl.SSLContext:
        if self._context is None:
            raise InvariantViolation(f"the TLS context of {self._name} was never loaded")
        return self._context

    async def load(self) -> None:
        """Raises ConfigurationError that says what is wrong."""
        options = self._find_options()
        self._state, self._context = await self._workers.run(lambda: self._read(options))

    async def refresh(self) -> bool:
        """Whether there is a new context."""
        options = self._find_options()
        state = await self._workers.run(lambda: _state_of(options))
        if state in (self._state, self._failed):
            return False
        try:
            self._state, self._context = await self._workers.run(lambda: self._read(options))
        except (ConfigurationError, MissingExtraError) as error:
            self._failed = state
            _log.error(
                "the changed certificates of %s are not used, the former stay in force: %s",
                self._name,
                error,
            )
            return False
        self._failed = ()
        _log.warning("new connections of %s use changed certificates", self._name)
        return True

    def _read(self, options: O) -> tuple[_State, ssl.SSLContext]:
        # The state first: a file that changes meanwhile is read again at the next look.
        return _state_of(options), self._make(options)


def _state_of(options: TlsOptions) -> _State:
    """What a context depends on."""
    values = tuple(getattr(options, one.attribute) for one in options.declarations().values())
    return (values, *map(_stamp, files_of(options)))


def _stamp(path: Path) -> tuple[int, int, int] | None:

    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
