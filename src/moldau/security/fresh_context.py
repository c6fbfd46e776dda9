"""A TLS context that is read anew for each connection. A shell, for threads that block.

For connections that are seldom, as those to ZooKeeper: `watched_context` is for listeners.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

from moldau.config.declarations.security import TlsOptions
from moldau.errors import ConfigurationError, MissingExtraError

_log = logging.getLogger("moldau.security")


class FreshContext:
    """`load` once; each call reads the files again. Used by one thread at a time."""

    def __init__(
        self, name: str, options: TlsOptions, make: Callable[[TlsOptions], ssl.SSLContext]
    ) -> None:
        self._name = name
        self._options = options
        self._make = make
        self._former: ssl.SSLContext | None = None

    def load(self) -> ssl.SSLContext:
        """Raises ConfigurationError that says what is wrong."""
        self._former = self._make(self._options)
        return self._former

    def __call__(self) -> ssl.SSLContext:
        """Of the files as they are, or as they were when they could be read for the last time."""
        former = self._former
        try:
            return self.load()
        except (ConfigurationError, MissingExtraError) as error:
            if former is None:
                raise
            _log.error(
                "the changed certificates of %s are not used, the former stay in force: %s",
                self._name,
                error,
            )
            return former
