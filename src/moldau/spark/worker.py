"""What a Python process of Spark keeps from task to task: clients, producers, and imported modules.

Connecting and asking for metadata costs more than many a task. Spark forks its workers from a
daemon, so what is kept belongs to the process that made it, and to no other. A shell.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.client.blocking_face import LoopThread
from moldau.client.cluster import ClusterClient, client_settings
from moldau.errors import MoldauError

if TYPE_CHECKING:
    from moldau.client.blocking import Producer
    from moldau.spark.options import SourceOptions, WriteOptions


# Clients


_ClientKey = tuple[int, str, tuple[tuple[str, str], ...]]


class WorkerClient(LoopThread):
    """A cluster's client and the thread that its loop runs in. Blocks; for any thread."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__("moldau-spark")
        self.cluster = ClusterClient(
            options.bootstrap,
            client_settings(options.client, timeout_ms=options.client.default_api_timeout_ms),
        )

    def close(self) -> None:
        self.run(self.cluster.close())
        super().close()


_clients: dict[_ClientKey, WorkerClient] = {}


def open_client(options: SourceOptions) -> WorkerClient:
    """The process's client for these options; made when there is none."""
    key = _client_key(options)
    if key not in _clients:
        _clients[key] = WorkerClient(options)
    return _clients[key]


def close_clients() -> None:
    """Close what this process keeps: for tests, and for processes that stay."""
    for key in [key for key in _clients if key[0] == os.getpid()]:
        _clients.pop(key).close()


def _client_key(options: SourceOptions) -> _ClientKey:
    client = options.client
    given = tuple(sorted((name, str(getattr(client, name))) for name in client.given))
    return os.getpid(), options.bootstrap, given


# Producers


_ProducerKey = tuple[int, str, tuple[tuple[str, str], ...]]

_CLIENT_ID = "moldau-spark"
_LINGER_MS = "20"
"""Arrow batches come whole: only what is left of one waits, and the end of a task ends that."""
_DISCARD_SECONDS = 1.0

_producers: dict[_ProducerKey, Producer] = {}


def open_producer(options: WriteOptions) -> Producer:
    """The worker's producer for these options; made when there is none."""
    key = _producer_key(options)
    if key not in _producers:
        _producers[key] = make_producer(options, {})
    return _producers[key]


def make_producer(options: WriteOptions, settings: Mapping[str, str]) -> Producer:
    """A producer with these options and settings, named as Kafka names them."""
    from moldau.client.blocking import Producer

    given = {"linger.ms": _LINGER_MS, "client.id": _CLIENT_ID, **dict(options.producer), **settings}
    keywords = {name.replace(".", "_"): value for name, value in given.items()}
    return Producer(options.bootstrap, **keywords)  # type: ignore[arg-type]  # mypy would have the texts be serializers


def discard_producer(options: WriteOptions) -> None:
    """Close it and forget it: the next task begins afresh."""
    found = _producers.pop(_producer_key(options), None)
    if found is not None:
        with contextlib.suppress(MoldauError, TimeoutError):  # the task has failed already
            found.close(_DISCARD_SECONDS)


def close_producers() -> None:
    """Close all producers of this process; for tests, whose brokers come and go."""
    for key in tuple(_producers):
        _producers.pop(key).close(_DISCARD_SECONDS)


def _producer_key(options: WriteOptions) -> _ProducerKey:
    return os.getpid(), options.bootstrap, options.producer


# Memory. Spark's daemon calls `gc.collect()` after every task of a worker that is used again. The
# collector then looks at everything that was ever imported, PySpark, Arrow and this client: 40 ms
# of work, which is more than most tasks have. What was there when the first task ended stays for as
# long as the worker does, so the collector need not look at it. For the same reason it need not run
# every few hundred rows, as it does by default: lists of rows to be written are long.


_THRESHOLDS: Final = (50_000, 20, 100)

_is_frozen = False


def freeze_once() -> None:
    """To be called when a task is done; does nothing but after the first, and in no other process.

    SPARK_REUSE_WORKER is how Spark's daemon is told that workers serve many tasks.
    """
    global _is_frozen
    if _is_frozen or not os.environ.get("SPARK_REUSE_WORKER"):
        return
    _is_frozen = True
    gc.collect()  # what is garbage now would stay for ever
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
