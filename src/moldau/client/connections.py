"""A connection to one broker: requests out, answers in, in the same order.

Answers for framing, correlation ids, pipelining, time-outs and learning the broker's versions.
Does not know topics or leaders, and never tries again: that is for those who know what a repeated
request means.

A shell. The reader task owns the receiving side; senders take turns at a lock. A request that goes
unanswered for too long ends the connection, because every later answer would queue behind it.
Long before that it is told (`outages`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from kio.schema.errors import ErrorCode

from moldau.client.outages import QUIET_SECONDS, BrokerOutages
from moldau.client.rules.addresses import Address
from moldau.client.rules.versions import BrokerVersions, choose_version
from moldau.clock import Clock, Timer
from moldau.errors import (
    BrokerUnreachableError,
    ClientError,
    ConnectionLostError,
    MalformedFrameError,
    NoAnswerError,
    ShapeError,
)
from moldau.net.port import Channel, Network
from moldau.wire.apis import API_VERSIONS, Api, VersionRange
from moldau.wire.headers import read_response_header, request_prefix
from moldau.wire.opening_messages import (
    LARGE_BYTES,
    MESSAGES,
    encode_opening,
    parse_opening,
)

if TYPE_CHECKING:
    from kio.schema.api_versions.v3.response import ApiVersionsResponse
    from kio.static.protocol import Payload

    from moldau.net.secured import ClientSecurity
    from moldau.wire.shape import Values

_log = logging.getLogger("moldau.client")

Buffer = bytes | bytearray | memoryview

NOTHING_DROPPABLE: frozenset[str] = frozenset()
_MAX_CORRELATION_ID = 0x7FFFFFFF
_ERROR_CODE_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """How long a connection waits, what it calls itself, and whom it tells of trouble."""

    client_id: str = "moldau"
    client_version: str = "0"
    connect_seconds: float = 5.0
    request_seconds: float = 30.0
    security: ClientSecurity | None = None
    outages: BrokerOutages = field(default_factory=BrokerOutages, compare=False)


class Response(NamedTuple):
    """A response: the frame, and where its body begins."""

    frame: memoryview
    position: int


class _Due(NamedTuple):
    """An answer that is waited for."""

    correlation_id: int
    api_key: int
    version: int
    arrived: asyncio.Future[Response]
    timer: Timer


class BrokerConnection:
    """One connection. Made by `open_connection`; used by any number of tasks of one loop."""

    def __init__(
        self, channel: Channel, address: Address, clock: Clock, settings: ConnectionSettings
    ) -> None:
        self.address = address
        self.versions: BrokerVersions = {}
        self.features: Mapping[str, int] = {}  # finalized in the cluster, with their levels
        self._channel = channel
        self._clock = clock
        self._settings = settings
        self._sending = asyncio.Lock()
        self._due: deque[_Due] = deque()  # in the order in which the requests were sent
        self._next_correlation_id = 0
        self._end: ClientError | None = None  # why it is over, once it is
        self._is_quiet = False  # an answer is late, and that was told
        self._reader = asyncio.get_running_loop().create_task(
            self._read_answers(), name=f"answers from {address}"
        )

    @property
    def is_open(self) -> bool:
        return self._end is None

    def choose_version(self, api: Api, *, at_least: int = 0, at_most: int | None = None) -> int:
        return choose_version(api, self.versions, at_least=at_least, at_most=at_most)

    async def call(
        self,
        api: Api,
        values: Values,
        droppable: frozenset[str] = NOTHING_DROPPABLE,
        *,
        version: int | None = None,
        extra_seconds: float = 0.0,
    ) -> Payload:
        """Send one message and wait for its answer, both as kio's classes, or as good as those."""
        if version is None:
            version = self.choose_version(api)
        body = _encode(api, version, values, droppable)
        answer = await self.exchange(api, version, (body,), extra_seconds=extra_seconds)
        return _parse(api, version, answer)

    async def exchange(
        self, api: Api, version: int, body: Sequence[Buffer], *, extra_seconds: float = 0.0
    ) -> Response:
        """Send an encoded body and wait for the answer.

        `extra_seconds` is how long the broker was asked to wait before it answers.
        """
        arrived = await self.post(api, version, body, extra_seconds=extra_seconds)
        return await arrived

    async def post(
        self, api: Api, version: int, body: Sequence[Buffer], *, extra_seconds: float = 0.0
    ) -> asyncio.Future[Response]:
        """Send an encoded body; the answer can be waited for later, after further requests."""
        async with self._sending:
            due = self._expect(api, version, extra_seconds)
            await self._send(api, version, due.correlation_id, body)
            return due.arrived

    async def send_without_answer(self, api: Api, version: int, body: Sequence[Buffer]) -> None:
        """Send a request that has no answer (Produce with acks=0)."""
        async with self._sending:
            await self._send(api, version, self._take_correlation_id(), body)

    async def wait_until_over(self) -> ClientError:
        """Why, once it is: also when nothing was asked."""
        await asyncio.wait((self._reader,))
        return self._end or ConnectionLostError(f"the connection to {self.address} has ended")

    async def close(self) -> None:
        self._finish(ConnectionLostError(f"the connection to {self.address} was closed"))
        self._reader.cancel()
        await asyncio.wait((self._reader,))

    async def learn_versions(self) -> None:
        """Ask which versions the broker speaks; old brokers refuse the newer way of asking."""
        version = API_VERSIONS.spoken.last
        answer = await self._ask_versions(version)
        if _refuses_version(answer):
            version = 0
            answer = await self._ask_versions(version)
        served = cast("ApiVersionsResponse", _parse(API_VERSIONS, version, answer))
        self.versions = {
            row.api_key: VersionRange(row.min_version, row.max_version) for row in served.api_keys
        }
        finalized = getattr(served, "finalized_features", ())  # from version 3 on
        self.features = {row.name: row.max_version_level for row in finalized}

    async def _ask_versions(self, version: int) -> Response:
        values = {
            "client_software_name": "moldau",
            "client_software_version": self._settings.client_version,
        }
        body = encode_opening(API_VERSIONS, version, values, frozenset(values))
        return await self.exchange(API_VERSIONS, version, (body,))

    def _expect(self, api: Api, version: int, extra_seconds: float) -> _Due:
        timeout_seconds = self._settings.request_seconds + extra_seconds
        quiet_seconds = min(QUIET_SECONDS + extra_seconds, timeout_seconds)
        correlation_id = self._take_correlation_id()
        due = _Due(
            correlation_id,
            api.key,
            version,
            asyncio.get_running_loop().create_future(),
            self._clock.call_later(
                quiet_seconds,
                lambda: self._on_quiet(correlation_id, api, quiet_seconds, timeout_seconds),
            ),
        )
        self._due.append(due)
        return due

    def _on_quiet(
        self, correlation_id: int, api: Api, quiet_seconds: float, timeout_seconds: float
    ) -> None:
        """An answer is late: that is told, and the rest of the time is waited for."""
        if quiet_seconds >= timeout_seconds:
            self._on_timeout(api, timeout_seconds)
            return
        self._is_quiet = True
        self._settings.outages.on_quiet(self.address, self._clock.monotonic(), quiet_seconds)
        rest = self._clock.call_later(
            timeout_seconds - quiet_seconds, lambda: self._on_timeout(api, timeout_seconds)
        )
        self._due = deque(
            due._replace(timer=rest) if due.correlation_id == correlation_id else due
            for due in self._due
        )

    async def _send(
        self, api: Api, version: int, correlation_id: int, body: Sequence[Buffer]
    ) -> None:
        if self._end is not None:
            self._drop_due(self._end)
            raise self._end
        size = sum(map(len, body))
        prefix = request_prefix(api.key, version, correlation_id, self._settings.client_id, size)
        try:
            await self._channel.send((prefix, *body))
        except OSError as error:
            self._finish(self._lost(error))
            self._reader.cancel()
            raise self._lost(error) from error

    def _take_correlation_id(self) -> int:
        taken = self._next_correlation_id
        self._next_correlation_id = (taken + 1) & _MAX_CORRELATION_ID
        return taken

    async def _read_answers(self) -> None:
        try:
            while True:
                self._deliver(await self._channel.receive())
        except OSError as error:
            self._finish(self._lost(error))
        except MalformedFrameError as error:
            self._finish(ConnectionLostError(f"{self.address} sent no answer of Kafka's: {error}"))
        finally:
            self._finish(ConnectionLostError(f"the connection to {self.address} was closed"))
            await self._channel.close()

    def _deliver(self, frame: Buffer) -> None:
        if not self._due:
            raise MalformedFrameError("an answer that nobody asked for")
        due = self._due[0]
        view = memoryview(frame)
        correlation_id, position = read_response_header(view, due.api_key, due.version)
        if correlation_id != due.correlation_id:
            raise MalformedFrameError(
                f"an answer to request {correlation_id} where {due.correlation_id} was next"
            )
        self._due.popleft()
        due.timer.cancel()
        if self._is_quiet:
            self._is_quiet = False
            self._settings.outages.on_answer(self.address, self._clock.monotonic())
        if not due.arrived.done():  # it is done when its waiter was cancelled
            due.arrived.set_result(Response(view, position))

    def _on_timeout(self, api: Api, timeout_seconds: float) -> None:
        self._finish(
            NoAnswerError(
                f"{self.address} did not answer {api.name} within {timeout_seconds:g} seconds"
            )
        )
        self._reader.cancel()

    def _lost(self, error: OSError) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self.address} was lost: {error}")

    def _finish(self, reason: ClientError) -> None:
        """The first reason counts; whoever waits for an answer hears it."""
        if self._end is None:
            self._end = reason
        self._drop_due(self._end)

    def _drop_due(self, reason: ClientError) -> None:
        while self._due:
            due = self._due.popleft()
            due.timer.cancel()
            if not due.arrived.done():
                due.arrived.set_exception(reason)
                due.arrived.exception()  # seen: the sender may have raised it already


def _encode(api: Api, version: int, values: Values, droppable: frozenset[str]) -> bytes:
    """A request's body. Raises TypeError for what a program has given and no message can say."""
    if api.key in MESSAGES:
        return encode_opening(api, version, values, droppable)
    # Not loaded by those who only begin.
    from moldau.wire.messages import encode_body
    from moldau.wire.shape import fit
    from moldau.wire.versions import request_class

    message_class = request_class(api.key, version)
    try:
        return encode_body(fit(message_class, values, droppable))
    except (ShapeError, TypeError, AttributeError, ArithmeticError, struct.error) as error:
        from moldau.wire.layout import find_misfit

        misfit = find_misfit(message_class, values)
        if misfit is None:
            raise
        raise TypeError(f"{api.name}: {misfit}") from error


def _parse(api: Api, version: int, answer: Response) -> Payload:
    if api.key in MESSAGES and len(answer.frame) <= LARGE_BYTES:
        return cast("Payload", parse_opening(api, version, answer.frame, answer.position))
    from moldau.wire.messages import parse
    from moldau.wire.versions import response_class

    return parse(response_class(api.key, version), answer.frame, answer.position)


def _refuses_version(answer: Response) -> bool:
    code = answer.frame[answer.position : answer.position + _ERROR_CODE_BYTES]
    return int.from_bytes(code, "big", signed=True) == ErrorCode.unsupported_version


async def open_connection(
    network: Network, clock: Clock, address: Address, settings: ConnectionSettings
) -> BrokerConnection:
    """Connect and learn the broker's versions; raises BrokerUnreachableError."""
    outages = settings.outages
    timer = clock.call_later(
        QUIET_SECONDS, lambda: outages.on_quiet(address, clock.monotonic(), QUIET_SECONDS)
    )
    try:
        connection = await _open(network, clock, address, settings)
    except BrokerUnreachableError as error:
        outages.on_unreachable(address, error, clock.monotonic())
        raise
    finally:
        timer.cancel()
    outages.on_answer(address, clock.monotonic())
    _log.info("connected to %s, which serves %d APIs", address, len(connection.versions))
    return connection


async def _open(
    network: Network, clock: Clock, address: Address, settings: ConnectionSettings
) -> BrokerConnection:
    if settings.security is not None:
        from moldau.net.secured import SecuredNetwork

        network = SecuredNetwork(network, clock, settings.security)
    try:
        channel = await network.connect(
            address.host, address.port, timeout=settings.connect_seconds
        )
    except OSError as error:  # TimeoutError is one
        raise BrokerUnreachableError(f"no broker answers at {address} ({_why(error)})") from error
    connection = BrokerConnection(channel, address, clock, settings)
    try:
        await connection.learn_versions()
    except (ClientError, MalformedFrameError) as error:
        await connection.close()
        # A secured listener hangs up on whoever speaks neither TLS nor SASL, and says nothing.
        is_hung_up = settings.security is None and isinstance(error, ConnectionLostError)
        is_hung_up = is_hung_up and "HTTP" not in str(error)  # a web server, whatever it wants
        hint = "; it may want TLS or SASL (security.protocol)" if is_hung_up else ""
        raise BrokerUnreachableError(
            f"{address} does not answer like a broker: {error}{hint}"
        ) from error
    except BaseException:
        await connection.close()
        raise
    return connection


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error.__cause__, ssl.SSLError):
        return str(error)
    # asyncio puts the whole call into strerror; the system's own words are shorter.
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return error.strerror or str(error)
