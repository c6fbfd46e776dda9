"""From a frame to its handler and back.

One `RequestPump` stands behind each connection. A handler that answers at once costs no task; one
that has to wait gets a task owned by the broker. The task is cancelled when its client goes, unless
the request changes the cluster: the audit log has the result of that.

A handler is imported, and the classes of its messages are made, with the first request of its API
and version: some 5 to 100 ms of computing, and most brokers never need most of them. A worker
imports it, so that only this request waits for it.

Responses leave a connection in the order of its requests. While produced batches wait for the
replicas, the next ones are appended (`ResponseQueue`); every other request waits until all before
it are answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from moldau.broker.api import DeferredResponse, RequestContext, ServedApi, Services
from moldau.broker.handlers import LOADED_AT_START, load_handler
from moldau.broker.purgatory import DelayedFetch
from moldau.broker.throttling import MeasuredWork, MutedConnection, RequestThrottle, make_throttle
from moldau.errors import ErrorCode, MalformedFrameError
from moldau.metrics.figures import NOT_TIMED, ApiFigures, ConnectionFigures, RequestFigures
from moldau.net.port import Chunk, Connection
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import API_VERSIONS, APIS, LEAVE_GROUP, NO_VERSION, OFFSET_COMMIT, PRODUCE
from moldau.wire.headers import RequestHeader, read_request_header, response_prefix
from moldau.wire.layout import arrays_with_errors
from moldau.wire.messages import parse_request, prepare_messages
from moldau.wire.values_writer import encode_values
from moldau.wire.versions import response_class
from moldau.workers import Workers

if TYPE_CHECKING:
    from kio.static.protocol import Entity

    from moldau.broker.authentication import SaslSession

_log = logging.getLogger("moldau.broker.requests")

_SENT_AND_GONE: Final = frozenset(api.key for api in (PRODUCE, OFFSET_COMMIT, LEAVE_GROUP))
"""What clients send without waiting for an answer before they close (NET-4). Thousands of other
requests that a client left behind would keep the loop busy for nobody."""

Answer = Sequence[Chunk] | None
"""The chunks of a whole answer, or None when the client wants none."""

Values = Mapping[str, object]

_ANY_API_VERSIONS: Served = API_VERSIONS.key, API_VERSIONS.served[1]
"""It answers to every version, as if it were its last."""
MAX_REQUEST_BYTES_BY_HAND: Final = 4 << 20
"""Of requests without records that are read by hand: a hundred thousand partitions. Those that kio
reads are bounded by the number of their elements (`wire.messages`), and by nothing else but
`socket.request.max.bytes`."""
_COUNTED_ELEMENTS = 16
"""Of each list in an answer: to look through thousands for errors would cost more than to know."""


class Handler(Protocol):
    """A module of `broker.handlers`. One that reads and writes its frames itself has
    `handle_frame(frame, position, context) -> Answer | Awaitable[Answer] | DeferredResponse |
    DelayedFetch` instead."""

    API: ServedApi

    def handle(self, request: Any, context: RequestContext) -> Values | Awaitable[Values]: ...


Served = tuple[int, int]
"""The key of an API and a version of it."""


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


class PendingResponse:
    """A place in the order of answers."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: Sequence[Chunk] | None = None  # None as long as it is not known


class ResponseQueue:
    """What one connection owes, oldest request first. Invariant: the first is not known yet.

    A Produce with acks=all has had its effect when its batches are appended; what is left is to
    wait for the replicas. Its connection owes the answer from then on, and the next Produce is
    appended meanwhile: a round of fetches of the followers commits what all of them brought,
    instead of one batch. Appends keep their order, since a batch is appended before the next
    request is looked at, and so do answers, which is all that a client can see. Sequence numbers of
    producers are checked against the log: what follows a batch that was refused is refused, too.
    No I/O.
    """

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


class RequestPump:
    """The receiver behind one connection; it answers one request at a time, but for Produce."""

    __slots__ = (
        "_client_is_gone",
        "_connection",
        "_connections",
        "_delayed",
        "_held",
        "_is_held",
        "_monotonic",
        "_muted",
        "_owed",
        "_owed_tasks",
        "_sasl",
        "_services",
        "_supervisor",
        "_table",
        "_task",
    )

    def __init__(
        self,
        connection: Connection,
        table: DispatchTable,
        services: Services,
        supervisor: TaskSupervisor,
        connections: ConnectionFigures,
        sasl: SaslSession | None = None,
    ) -> None:
        self._connection = connection
        self._connections = connections
        self._monotonic = services.clock.monotonic
        self._table = table
        self._services = services
        self._supervisor = supervisor
        self._sasl = sasl
        self._task: asyncio.Task[None] | None = None  # the answer under way, if it has to wait
        self._delayed: DelayedFetch | None = None  # the same, of a fetch
        self._client_is_gone = False  # nobody waits for answers; what was sent is still done
        self._is_held = False
        self._held: memoryview | None = None  # one at most: no second frame before an answer
        self._owed: ResponseQueue | None = None  # made when there is something for the first time
        self._owed_tasks: dict[asyncio.Task[None], None] = {}  # of what is owed
        self._muted: MutedConnection | None = None  # made when the client has to wait at first

    def hold(self) -> None:
        """Keep the next request until `release`: the broker is still starting, say."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._release_held_frame()

    def _release_held_frame(self) -> None:
        frame = self._held
        if frame is not None and not self._is_held:
            self._held = None
            self.on_frame(frame)

    def on_frame(self, frame: memoryview) -> None:
        if self._is_held:
            self._held = frame
            return
        connection = self._connection
        try:
            header, position = read_request_header(frame)
            handler = self._table.find(header)
            if handler is None:
                self._load_handler(header, frame)
                return
            if (self._owed or not connection.is_heard) and self._is_postponed(header, frame):
                return
            module = handler.module
            if len(frame) > handler.max_bytes:
                raise MalformedFrameError(f"a {module.API.name} of {len(frame)} bytes is too large")
            services = self._services
            figures = handler.figures
            left = figures.left = figures.left - 1
            began = self._monotonic() if left <= 0 else NOT_TIMED
            throttle = (
                make_throttle(header, len(frame), connection, services)
                if services.quotas.is_enabled
                else None
            )
            context = RequestContext(header, connection, services, figures, throttle, self._sasl)
            answer = (
                _answer(cast(Handler, module), frame, position, context)
                if handler.handle_frame is None
                else handler.handle_frame(frame, position, context)
            )
        except MalformedFrameError as error:
            connection.close(f"malformed request: {error}")
            return
        except Exception:  # noqa: BLE001 a bug costs one client its connection, not the broker
            _log.exception("a request of %s failed", connection.id)
            connection.close("internal error")
            return
        if throttle is not None:
            self._finish_throttled(module, answer, throttle, figures, began)
        elif isinstance(answer, list) and not self._owed:
            connection.send(answer)
            if left <= 0:
                figures.note_timed(self._monotonic() - began)
        else:
            self._finish_response(module, answer, figures, began)

    def _is_postponed(self, header: RequestHeader, frame: memoryview) -> bool:
        """Whether a request waits, or is not answered at all."""
        if not self._connection.is_heard and header.api_key not in _SENT_AND_GONE:
            self._connection.skip_answer()  # it only asks, and nobody is left to be told
            return True
        if self._owed and header.api_key != PRODUCE.key:
            self._held = frame  # it may be about what was produced
            return True
        return False

    def _load_handler(self, header: RequestHeader, frame: memoryview) -> None:
        """Nobody has asked for this API and version before."""
        if not self._table.is_served(header):
            # As Kafka: the body cannot be read, so neither can what follows be trusted.
            reason = f"API {header.api_key} v{header.api_version} is not served"
            _log.info(
                "closing connection %s of %s (client id %r): %s",
                self._connection.id,
                self._connection.peer_host,
                header.client_id,
                reason,
            )
            self._connection.close(reason)
            return
        self.hold()
        self._held = frame
        self._supervisor.spawn(f"loading API {header.api_key}", self._load_and_release(header))

    async def _load_and_release(self, header: RequestHeader) -> None:
        try:
            await self._table.load(header, self._services.workers)
        except Exception:  # noqa: BLE001 as above: one client, not the broker
            _log.exception("the handler of API %d cannot be loaded", header.api_key)
            self._connection.close("internal error")
        else:
            self.release()

    def _finish_throttled(
        self,
        module: ModuleType,
        answer: list[Chunk] | Awaitable[Answer] | DeferredResponse | DelayedFetch | None,
        throttle: RequestThrottle,
        figures: ApiFigures,
        began: float,
    ) -> None:
        """An answer to a client that may have a quota, and then has to wait when it exceeds it."""
        if answer is None or isinstance(answer, list):
            self._mute_if_throttled(throttle)
            self._finish_response(module, answer, figures, began)
            throttle.end()
        elif isinstance(answer, DelayedFetch):
            self._wait_for_fetch(answer, figures, began, throttle)
        elif isinstance(answer, DeferredResponse):
            self._mute_if_throttled(throttle)  # for what was produced
            later = DeferredResponse(self._charge_when_done(answer.work, throttle))
            self._finish_response(module, later, figures, began)
        else:
            self._finish_response(module, self._charge_when_done(answer, throttle), figures, began)

    async def _charge_when_done(self, work: Awaitable[Answer], throttle: RequestThrottle) -> Answer:
        answer = await MeasuredWork(work, throttle)
        self._mute_if_throttled(throttle)
        return answer

    def _mute_if_throttled(self, throttle: RequestThrottle) -> None:
        if throttle.throttle_ms:
            self._muted = self._muted or MutedConnection(self._connection, self._services)
            self._muted.mute(throttle)

    def _finish_response(
        self,
        module: ModuleType,
        answer: list[Chunk] | Awaitable[Answer] | DeferredResponse | DelayedFetch | None,
        figures: ApiFigures,
        began: float,
    ) -> None:
        """An answer that does not leave at once."""
        if answer is None or isinstance(answer, list):
            if began != NOT_TIMED:
                figures.note_timed(self._monotonic() - began)
            if answer is None:
                self._connection.skip_answer()
            else:
                self._send(answer)
            return
        if isinstance(answer, DelayedFetch):
            self._wait_for_fetch(answer, figures, began)
            return
        figures.left += 1  # it was not answered at once, and is timed from here on
        began = self._monotonic() if began == NOT_TIMED else began
        if isinstance(answer, DeferredResponse):
            self._defer_response(module, answer, figures, began)
        else:
            name = f"{module.API.name} of {self._connection.id}"
            task = self._supervisor.spawn(name, self._await_response(answer, figures, began))
            if module.API.changes_cluster:
                return
            self._task = task
            if self._client_is_gone:
                self._end_task()

    def _wait_for_fetch(
        self,
        answer: DelayedFetch,
        figures: ApiFigures,
        began: float,
        throttle: RequestThrottle | None = None,
    ) -> None:
        figures.left += 1  # as above
        began = self._monotonic() if began == NOT_TIMED else began

        def finish(chunks: list[Chunk] | Exception) -> None:
            self._delayed = None
            if isinstance(chunks, Exception):
                _log.error("a request of %s failed", self._connection.id, exc_info=chunks)
                self._connection.close("internal error")
                return
            if throttle is not None:
                self._mute_if_throttled(throttle)
            figures.note_waited(self._monotonic() - began)
            self._send(chunks)

        self._delayed = answer
        answer.begin(finish)
        if self._client_is_gone:
            self._end_task()

    async def _await_response(
        self, answer: Awaitable[Answer], figures: ApiFigures, began: float
    ) -> None:
        chunks: Answer = None
        try:
            chunks = await answer
        except asyncio.CancelledError:
            self._task = None
            self._connection.skip_answer()  # frames that came before the client went may follow
            raise
        except Exception:  # noqa: BLE001 as above
            _log.exception("a request of %s failed", self._connection.id)
            self._connection.close("internal error")
            return
        finally:
            if self._task is asyncio.current_task():
                self._task = None
        figures.note_waited(self._monotonic() - began)
        if chunks is None:
            self._connection.skip_answer()
        else:
            self._send(chunks)

    def _send(self, chunks: Sequence[Chunk]) -> None:
        if self._owed:  # it leaves behind those
            self._owed.answer(self._owed.owe(), chunks)
            self._connection.owe_answer()
        else:
            self._connection.send(chunks)

    def _defer_response(
        self, module: ModuleType, answer: DeferredResponse, figures: ApiFigures, began: float
    ) -> None:
        owed = self._owed
        if owed is None:
            owed = self._owed = ResponseQueue()
        name = f"{module.API.name} of {self._connection.id}"
        work = self._await_deferred(owed, owed.owe(), answer.work, figures, began)
        task = self._supervisor.spawn(name, work)
        self._owed_tasks[task] = None
        if self._client_is_gone:
            _cancel_soon(task)
        self._connection.owe_answer()

    async def _await_deferred(
        self,
        owed: ResponseQueue,
        place: PendingResponse,
        work: Awaitable[Answer],
        figures: ApiFigures,
        began: float,
    ) -> None:
        chunks: Answer = None
        try:
            chunks = await work
            figures.note_waited(self._monotonic() - began)
        except Exception:  # noqa: BLE001 as above
            _log.exception("a request of %s failed", self._connection.id)
            self._connection.close("internal error")
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._owed_tasks.pop(task, None)
            for leaving in owed.answer(place, chunks or ()):
                self._connection.send_owed(leaving)
            if not owed:
                self._release_held_frame()

    def on_client_gone(self) -> None:
        self._client_is_gone = True
        self._end_task()

    def on_closed(self) -> None:
        self._connections.closed += 1
        self._held = None
        if self._muted is not None:
            self._muted.end()
        self._end_task()
        self._services.shares.on_connection_closed(self._connection)

    def _end_task(self) -> None:
        """Nobody waits for the answer. A handler that has to finish its work first does so."""
        delayed, self._delayed = self._delayed, None
        if delayed is not None:
            delayed.cancel()
            # Not at once: frames that came before the client went may follow.
            asyncio.get_running_loop().call_soon(self._connection.skip_answer)
        if self._task is not None:
            _cancel_soon(self._task)
        for task in self._owed_tasks:
            _cancel_soon(task)


def _cancel_soon(task: asyncio.Task[None]) -> None:
    # Not before its first step, which is scheduled already: a handler that has never begun could
    # not clean up after itself.
    asyncio.get_running_loop().call_soon(task.cancel)


def _answer(
    handler: Handler, frame: memoryview, position: int, context: RequestContext
) -> list[Chunk] | Awaitable[Answer]:
    """Parse, handle and encode with kio's classes."""
    header = context.header
    version = min(header.api_version, handler.API.last)
    request = parse_request(header.api_key, version, frame, position)
    values = handler.handle(request, context)
    if isinstance(values, Mapping):
        return _encode(handler.API, values, context, version)
    return _encode_later(handler.API, values, context, version)


async def _encode_later(
    api: ServedApi, values: Awaitable[Values], context: RequestContext, version: int
) -> Answer:
    return _encode(api, await values, context, version)


def _encode(api: ServedApi, values: Values, context: RequestContext, version: int) -> list[Chunk]:
    header = context.header
    message_class = response_class(api.key, version)
    _count_errors(values, message_class, context)
    throttle_ms = 0 if context.throttle is None else context.throttle.charge_time()
    values = {"throttle_time": throttle_ms, **values}
    body = encode_values(message_class, values, api.droppable)
    return [response_prefix(api.key, version, header.correlation_id, len(body)) + body]


def _count_errors(values: Values, structure: type[Entity], context: RequestContext) -> None:
    """Of the answer, and of what it lists: topics, partitions, groups."""
    code = values.get("error_code")
    if code and isinstance(code, ErrorCode):
        context.count_error(code.value)
    for name, element_class in arrays_with_errors(structure):
        value = values.get(name)
        if type(value) is list and value and type(value[0]) is dict:
            for one in value[:_COUNTED_ELEMENTS]:
                _count_errors(one, element_class, context)
