"""Which handler answers which request; those that nobody has asked for are not loaded.

A handler is imported, and the classes of its messages are made, with the first request of its API
and version: some 5 to 100 ms of computing, and most brokers never need most of them. A worker does
it, so that only the client that asks first waits. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from moldau.broker.api import ServedApi
from moldau.broker.handlers import LOADED_AT_START, load_handler
from moldau.metrics.figures import RequestFigures
from moldau.wire.apis import API_VERSIONS, APIS, NO_VERSION, PRODUCE
from moldau.wire.headers import RequestHeader
from moldau.wire.messages import prepare_messages
from moldau.workers import Workers

Served = tuple[int, int]
"""The key of an API and a version of it."""

_ANY_API_VERSIONS: Served = API_VERSIONS.key, API_VERSIONS.served[1]
"""It answers to every version, as if it were its last."""


MAX_REQUEST_BYTES_BY_HAND: Final = 4 << 20
"""Of requests without records that are read by hand: a hundred thousand partitions. Those that kio
reads are bounded by the number of their elements (`wire.messages`), and by nothing else but
`socket.request.max.bytes`."""


class LoadedHandler:
    """Who answers requests of one API, and what is asked of them with each request."""

    __slots__ = ("figures", "handle_frame", "max_bytes", "module")

    def __init__(self, module: ModuleType, requests: RequestFigures) -> None:
        api: ServedApi = module.API
        is_bounded = api.by_hand and api.key != PRODUCE.key
        self.module = module
        self.figures = requests.of(api.key)
        self.max_bytes = MAX_REQUEST_BYTES_BY_HAND if is_bounded else math.inf
        # None where kio reads the requests.
        self.handle_frame: Callable[..., Any] | None = module.handle_frame if api.by_hand else None


class DispatchTable:
    """The handlers by API and version, as far as they were asked for."""

    def __init__(self, requests: RequestFigures) -> None:
        self._requests = requests
        self._ready: dict[Served, LoadedHandler] = {}
        self._loading: dict[Served, asyncio.Future[None]] = {}  # under way in a worker
        for module in map(load_handler, LOADED_AT_START):
            api: ServedApi = module.API
            if api.by_hand:  # there is nothing else to prepare
                handler = LoadedHandler(module, requests)
                for version in range(api.first, api.last + 1):
                    self._ready[api.key, version] = handler

    def find(self, header: RequestHeader) -> LoadedHandler | None:
        """The handler, if it can answer at once."""
        found = self._ready.get(header[:2])  # the key and the version
        if found is None and header.api_key == API_VERSIONS.key:
            return self._ready.get(_ANY_API_VERSIONS)
        return found

    def is_served(self, header: RequestHeader) -> bool:
        """Whether there is a handler, loaded or not; ApiVersions answers to every version."""
        api = APIS.get(header.api_key)
        if api is None or api.served == NO_VERSION:
            return False
        first, last = api.served
        return first <= header.api_version <= last or api is API_VERSIONS

    async def load(self, header: RequestHeader, workers: Workers) -> None:
        """Return when the handler of a request that is served can be found."""
        api = APIS[header.api_key]
        served = api.key, min(header.api_version, api.served[1])
        while served not in self._ready:
            loading = self._loading.get(served)
            if loading is not None:  # for somebody else; should it fail there, it is tried here
                await loading
                continue
            loading = self._loading[served] = asyncio.get_running_loop().create_future()
            try:
                module = await workers.run(lambda: _prepare(served))
                self._ready[served] = LoadedHandler(module, self._requests)
            finally:
                del self._loading[served]
                if not loading.done():
                    loading.set_result(None)


def _prepare(served: Served) -> ModuleType:
    api_key, version = served
    module = load_handler(APIS[api_key])
    if not module.API.by_hand:
        prepare_messages(api_key, version)
    return module
