"""The producers of a Python worker: kept from task to task.

Connecting and asking for metadata costs more than many a task. A shell. Spark forks its workers
from a daemon, so that what is kept belongs to the process that made it, and to nobody else.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from moldau.errors import MoldauError

if TYPE_CHECKING:
    from moldau.client.blocking import Producer
    from moldau.spark.rules.write_options import WriteOptions

_Key = tuple[int, str, tuple[tuple[str, str], ...]]

_LINGER_MS = "20"
"""Arrow batches come whole: only what is left of one waits, and the end of a task ends that."""
_DISCARD_SECONDS = 1.0

_kept: dict[_Key, Producer] = {}


def borrow(options: WriteOptions) -> Producer:
    """The worker's producer for these options; made when there is none."""
    from moldau.client.blocking import Producer

    found = _kept.get(_key(options))
    if found is None:
        given = {"linger.ms": _LINGER_MS, "client.id": "moldau-spark", **dict(options.producer)}
        keywords = {name.replace(".", "_"): value for name, value in given.items()}
        found = _kept[_key(options)] = Producer(options.bootstrap, **keywords)  # type: ignore[arg-type]  # mypy would have the texts be serializers
    return found


def discard(options: WriteOptions) -> None:
    """Close it and forget it: the next task begins afresh."""
    found = _kept.pop(_key(options), None)
    if found is not None:
        with contextlib.suppress(MoldauError, TimeoutError):  # the task has failed already
            found.close(_DISCARD_SECONDS)


def close_producers() -> None:
    """Close all producers of this process; for tests, whose brokers come and go."""
    for key in tuple(_kept):
        _kept.pop(key).close(_DISCARD_SECONDS)


def _key(options: WriteOptions) -> _Key:
    return os.getpid(), options.bootstrap, options.producer
