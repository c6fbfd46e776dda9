"""Says in good time that a certificate of this broker ends, in its log and in its metrics. A shell.

New certificates are taken up by others (`security.watched_context`); here they are only looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from moldau.clock import Clock
from moldau.config.declarations.security import TlsOptions
from moldau.errors import ConfigurationError, MissingExtraError
from moldau.metrics.figures import BrokerFigures
from moldau.security.rules.certificate_dates import is_to_be_told, remaining
from moldau.workers import Workers

_log = logging.getLogger("moldau.broker.security")

_SECONDS_BETWEEN_LOOKS: Final = 60.0


class KeyStore(NamedTuple):
    """A certificate in use, and for what."""

    used_for: str
    options: TlsOptions


class CertificateWatch:
    """`look` now and then: it reads files at most once a minute. Owned by the event loop."""

    def __init__(
        self,
        stores: Callable[[], Iterable[KeyStore]],
        *,
        clock: Clock,
        workers: Workers,
        figures: BrokerFigures,
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._workers = workers
        self._figures = figures
        self._looks_at = float("-inf")  # monotonic seconds
        self._told_ms: dict[tuple[str, int], int] = {}  # by what it is used for, and its end

    async def look(self) -> None:
        now = self._clock.monotonic()
        if now < self._looks_at:
            return
        self._looks_at = now + _SECONDS_BETWEEN_LOOKS
        from moldau.security.tls import find_chain_end_ms

        ends: dict[str, int] = {}
        for used_for, options in self._stores():
            try:
                end_ms = await self._workers.run(partial(find_chain_end_ms, options))
            except (ConfigurationError, MissingExtraError):
                continue  # who uses it says so
            if end_ms is not None:
                ends[used_for] = end_ms
        self._figures.certificates_end_ms = min(ends.values(), default=None)
        self._tell(ends)

    def _tell(self, ends: dict[str, int]) -> None:
        now_ms = self._clock.now_ms()
        told = {key: at for key, at in self._told_ms.items() if ends.get(key[0]) == key[1]}
        for key in ends.items():
            used_for, end_ms = key
            if is_to_be_told(end_ms, now_ms, told.get(key)):
                told[key] = now_ms
                level = logging.ERROR if end_ms <= now_ms else logging.WARNING
                text = remaining(end_ms, now_ms)
                _log.log(level, "the certificate of %s %s; renew it", used_for, text)
        self._told_ms = told
