"""The client of a Python process: kept from task to task, and from trigger to trigger.

Connecting and asking for metadata costs more than many a task. A shell. Spark forks its workers
from a daemon, so what is kept belongs to the process that made it, and to nobody else.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.client.cluster_client import ClusterClient
from moldau.client.loop_thread import LoopThread
from moldau.client.option_settings import client_settings

if TYPE_CHECKING:
    from moldau.spark.options import SourceOptions

T = TypeVar("T")

_Key = tuple[int, str, tuple[tuple[str, str], ...]]


class WorkerClient:
    """A cluster's client and the thread that its loop runs in. Blocks; for any thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._loop = LoopThread("moldau-spark")
        self.cluster = ClusterClient(
            options.bootstrap,
            client_settings(options.client, timeout_ms=options.client.default_api_timeout_ms),
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)

    def close(self) -> None:
        self._loop.run(self.cluster.close())
        self._loop.close()


_kept: dict[_Key, WorkerClient] = {}


def client_for(options: SourceOptions) -> WorkerClient:
    """The process's client for these options; made when there is none."""
    key = _key(options)
    found = _kept.get(key)
    if found is None:
        found = _kept[key] = WorkerClient(options)
    return found


def close_clients() -> None:
    """Close what this process keeps: for tests, and for processes that stay."""
    for key in [key for key in _kept if key[0] == os.getpid()]:
        _kept.pop(key).close()


def _key(options: SourceOptions) -> _Key:
    client = options.client
    given = tuple(sorted((name, str(getattr(client, name))) for name in client.given))
    return os.getpid(), options.bootstrap, given
