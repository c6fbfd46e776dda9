"""What a handler declares about its API and how it may answer, and the table of handlers.

A handler is imported, and the classes of its messages are made, with the first request of its API
and version: some 5 to 100 ms of computing, and most brokers never need most of them. A worker
imports it, so that only this request waits for it.

Responses leave a connection in the order of its requests (`ResponseQueue`), whichever of them is
ready first. Large responses are encoded in slices, so that they do not block the event loop.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau.broker.handlers import LOADED_AT_START, load_handler
from moldau.metrics.figures import RequestFigures
from moldau.net.port import Chunk
from moldau.wire.apis import API_VERSIONS, APIS, NO_VERSION, PRODUCE, Api
from moldau.wire.headers import RequestHeader
from moldau.wire.layout import element_class_of
from moldau.wire.messages import prepare_messages
from moldau.wire.shape import EncodedArray
from moldau.wire.values_writer import encode_values
from moldau.wire.versions import response_class
from moldau.workers import Workers

if TYPE_CHECKING:
    from kio.static.protocol import Entity


class ServedApi(NamedTuple):
    """One API as this broker serves it."""

    name: str
    """kio's, and so is the handler's module name: `list_offsets`."""
    key: int
    first: int
    last: int
    droppable: frozenset[str]
    """Fields of the newest answer that an older version may lose."""
    by_hand: bool
    """The handler reads and writes its frames itself (Produce and Fetch)."""
    changes_cluster: bool
    """A request is finished, and audited, when the client has gone. It may have gone on purpose:
    what was sent to the store is done there, whoever waits for it."""


def serves(
    api: Api,
    *,
    droppable: Iterable[str] = (),
    by_hand: bool = False,
    changes_cluster: bool = False,
) -> ServedApi:
    """Declare an API, in the versions that the table names."""
    first, last = api.served
    return ServedApi(
        name=api.snake_name,
        key=api.key,
        first=first,
        last=last,
        droppable=frozenset(droppable),
        by_hand=by_hand,
        changes_cluster=changes_cluster,
    )


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


# A Produce with acks=all has had its effect when its batches are appended; what is left is to wait
# for the replicas. Its connection owes the answer from then on, and the next Produce is appended
# meanwhile: a round of fetches of the followers commits what all of them brought, instead of one
# batch. Appends keep their order, since a batch is appended before the next request is looked at,
# and so do answers, which is all that a client can see. Sequence numbers of producers are checked
# against the log, as ever: what follows a batch that was refused is refused, too.
#
# No I/O. Owned by the event loop.


class DeferredResponse(NamedTuple):
    """What a handler returns that has done all but wait: the frame is not needed any more."""

    work: Awaitable[Sequence[Chunk] | None]


class PendingResponse:
    """A place in the order of answers."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: Sequence[Chunk] | None = None  # None as long as it is not known


class ResponseQueue:
    """What one connection owes, oldest request first. Invariant: the first is not known yet."""

    __slots__ = ("_owed",)

    def __init__(self) -> None:
        self._owed: deque[PendingResponse] = deque()

    def __len__(self) -> int:
        return len(self._owed)

    def owe(self) -> PendingResponse:
        """Take the last place."""
        place = PendingResponse()
        self._owed.append(place)
        return place

    def answer(self, place: PendingResponse, chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
        """The answer of a place is known; returns those that can leave now, in order."""
        place.chunks = chunks
        leaving: list[Sequence[Chunk]] = []
        owed = self._owed
        while owed and (known := owed[0].chunks) is not None:
            owed.popleft()
            leaving.append(known)
        return leaving


# A shell. What an answer says may change between two slices, so whoever makes one takes what it
# reads from once (an image, a list) or says that its elements are of different moments.


class Slices:
    """Counts the pieces of one answer and lets others have the loop after every `size` of them."""

    __slots__ = ("_left", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size

    async def piece_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._left = self._size
            await asyncio.sleep(0)


def answered_class(api: ServedApi, version: int, *arrays: str) -> type[Entity]:
    """The class of the elements of an array of an answer; of an array inside those, and so on."""
    found: type[Entity] = response_class(api.key, version)
    for name in arrays:
        found = element_class_of(found, name)
    return found


def encode_element(
    element_class: type[Entity], values: Mapping[str, object], api: ServedApi
) -> bytes:
    return encode_values(element_class, values, api.droppable)


async def encode_array(
    element_class: type[Entity],
    rows: Iterable[Mapping[str, object]],
    api: ServedApi,
    slices: Slices,
) -> EncodedArray:
    """The elements in slices; `rows` is lazy where making the values takes long too."""
    elements = []
    for row in rows:
        elements.append(encode_element(element_class, row, api))
        await slices.piece_done()
    return EncodedArray(elements)
