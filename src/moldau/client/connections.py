"""Connections to brokers: requests out, answers in, in the same order; and a pool of them.

Answers for framing, correlation ids, pipelining, time-outs and learning the broker's versions.
Does not know topics or leaders, and never repeats a request: that is for those who know what a
repeated request means. Warns when a broker does not answer, long before the connection ends.

A shell. The reader task owns the receiving side; senders take turns at a lock. A request that
goes unanswered for too long ends the connection, because every later answer would queue behind
it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
import struct
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

from kio.schema.errors import ErrorCode

from moldau.client.rules.cluster_metadata import Address
from moldau.clock import Clock, Timer
from moldau.errors import (
    BrokerUnreachableError,
    ClientError,
    ClusterUnreachableError,
    ConnectionLostError,
    KafkaError,
    LeaderNotAvailableError,
    MalformedFrameError,
    NoAnswerError,
    ShapeError,
    StorageError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition
from moldau.net.port import Channel, Network
from moldau.wire.apis import API_VERSIONS, Api, VersionRange
from moldau.wire.headers import read_response_header, request_prefix
from moldau.wire.opening_messages import LARGE_BYTES, MESSAGES, encode_opening, parse_opening

if TYPE_CHECKING:
    from kio.schema.api_versions.v3.response import ApiVersionsResponse
    from kio.static.protocol import Payload

    from moldau.net.secured import ClientSecurity
    from moldau.wire.shape import Values


# The pool


class ConnectionPool:
    """The connections of one client to one cluster."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        network: Network,
        clock: Clock,
        settings: ConnectionSettings,
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._network = network
        self._clock = clock
        self._settings = settings
        self._brokers: Mapping[int, Address] = {}
        self._connections: dict[Address, BrokerConnection] = {}
        self._opening: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)

    def learn_brokers(self, brokers: Mapping[int, Address]) -> None:
        """Take over what metadata says of the cluster."""
        self._brokers = dict(brokers)

    async def to_broker(self, broker_id: int) -> BrokerConnection:
        """A connection to this broker; raises BrokerUnreachableError."""
        address = self._brokers.get(broker_id)
        if address is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not in the cluster's metadata")
        return await self._to_address(address)

    async def to_any(self) -> BrokerConnection:
        """A connection to whichever broker answers: open ones, known ones, then bootstrap.

        Raises ClusterUnreachableError when none does.
        """
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        # Bootstrap last: after a move of the whole cluster only the addresses learned are right,
        # but when all of those are gone, the ones that a person gave are worth another try.
        candidates = dict.fromkeys((*self._brokers.values(), *self._bootstrap))
        failures: list[BrokerUnreachableError] = []
        for address in candidates:
            try:
                return await self._to_address(address)
            except BrokerUnreachableError as error:
                failures.append(error)
        raise _none_of(tuple(candidates), failures)

    def no_answer_within(self, seconds: float) -> ClusterUnreachableError:
        """What to raise when brokers can be connected to, perhaps, but say nothing."""
        tried = tuple(dict.fromkeys((*self._brokers.values(), *self._bootstrap)))
        return ClusterUnreachableError(
            f"no broker has answered within {seconds:g} seconds at {', '.join(map(str, tried))}"
        )

    async def close(self) -> None:
        """Close every connection; whoever waits for an answer hears of it."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    async def _to_address(self, address: Address) -> BrokerConnection:
        found = self._connections.get(address)
        if found is not None and found.is_open:
            return found
        async with self._opening[address]:
            found = self._connections.get(address)
            if found is None or not found.is_open:
                found = await open_connection(self._network, self._clock, address, self._settings)
                self._connections[address] = found
            return found


def _none_of(
    tried: Sequence[Address], failures: Sequence[BrokerUnreachableError]
) -> ClusterUnreachableError:
    if len(failures) == 1:
        return ClusterUnreachableError(str(failures[0]))
    listed = ", ".join(map(str, tried))
    return ClusterUnreachableError(f"none of {listed} answers: {failures[0]}")


# Outages: brokers that do not answer, partitions that are refused. Clients try again for minutes,
# as they should; a warning is logged within two seconds.


_outages_log = logging.getLogger("moldau.client.outages")

QUIET_SECONDS = 1.5
"""A broker that takes longer than this to answer, beyond what it was asked to wait, is told of."""

NO_LEADER = LeaderNotAvailableError("no broker leads it at the moment")

_NO_STORAGE = (
    "the broker cannot use the disk of this partition (KAFKA_STORAGE_ERROR): it may be full; the "
    "broker's log says more"
)


class BrokerOutages:
    """Which brokers do not answer; shared by all connections of one client."""

    def __init__(self) -> None:
        self._outages: Outages[Address] = Outages()

    def on_unreachable(self, address: Address, error: BrokerUnreachableError, now: float) -> None:
        if self._outages.on_failure(address, now):
            _outages_log.warning("%s; trying again", error)

    def on_quiet(self, address: Address, now: float, quiet_seconds: float) -> None:
        """A request, or the wish to connect, has had no answer for so long."""
        if self._outages.on_failure(address, now, lasted_seconds=quiet_seconds):
            _outages_log.warning(
                "%s has not answered for %.0f seconds; waiting", address, quiet_seconds
            )

    def on_answer(self, address: Address, now: float) -> None:
        lasted_seconds = self._outages.on_success(address, now)
        if lasted_seconds is not None:
            _outages_log.warning("%s answers again, after %.0f seconds", address, lasted_seconds)


class PartitionOutages:
    """Which partitions are refused by brokers that do answer."""

    def __init__(self) -> None:
        self._outages: Outages[TopicPartition] = Outages()

    def __bool__(self) -> bool:
        """Whether there are any: success need not be told otherwise."""
        return bool(self._outages)

    def on_refusal(self, partition: TopicPartition, error: KafkaError, now: float) -> None:
        """What was asked for will be tried again."""
        is_storage = isinstance(error, StorageError)
        if self._outages.on_failure(partition, now, is_grave=is_storage):
            words = _NO_STORAGE if is_storage else str(error).removeprefix(f"{partition}: ")
            _outages_log.warning("%s: %s; trying again", partition, words)

    def on_success(self, partition: TopicPartition, now: float) -> None:
        lasted_seconds = self._outages.on_success(partition, now)
        if lasted_seconds is not None:
            _outages_log.warning(
                "%s is served again, after %.0f seconds", partition, lasted_seconds
            )


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
        raise BrokerUnreachableError(
            f"no broker answers at {address} ({_explain_os_error(error)})"
        ) from error
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


def _explain_os_error(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error.__cause__, ssl.SSLError):
        return str(error)
    # asyncio puts the whole call into strerror; the system's own words are shorter.
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return error.strerror or str(error)


BrokerVersions = Mapping[int, VersionRange]
"""By API key: what the broker's answer to ApiVersions says."""


def choose_version(
    api: Api, broker: BrokerVersions, *, at_least: int = 0, at_most: int | None = None
) -> int:
    """The newest common version between these two; raises when there is none."""
    served = broker.get(api.key)
    if served is None:
        raise UnsupportedByBrokerError(f"the broker does not serve {api.name} requests")
    first = max(api.spoken.first, at_least)
    last = api.spoken.last if at_most is None else min(api.spoken.last, at_most)
    version = min(last, served.last)
    if version < max(first, served.first):
        raise UnsupportedByBrokerError(
            f"the broker serves {api.name} versions {served.first} to {served.last}, "
            f"this client speaks {first} to {last}"
        )
    return version


# A failure that passes within a second is not logged: leaders move, connections are reset. One that
# lasts is logged, again every half a minute, and once more when it is over.


K = TypeVar("K")

TOLD_AFTER_SECONDS = 1.0
TOLD_AGAIN_AFTER_SECONDS = 30.0


class Outages(Generic[K]):
    """The troubles of one client. `now` is a monotonic time in seconds."""

    def __init__(self) -> None:
        self._since: dict[K, float] = {}  # when each trouble was met first
        self._told_at: dict[K, float] = {}  # of troubles that were told, when that was last

    def __bool__(self) -> bool:
        """Whether there is any trouble."""
        return bool(self._since)

    def on_failure(
        self, subject: K, now: float, *, lasted_seconds: float = 0.0, is_grave: bool = False
    ) -> bool:
        """Whether to tell of it now. What is grave does not pass by itself: it is told at once."""
        since = self._since.setdefault(subject, now - lasted_seconds)
        if now - since < TOLD_AFTER_SECONDS and not is_grave:
            return False
        told_at = self._told_at.get(subject)
        if told_at is not None and now - told_at < TOLD_AGAIN_AFTER_SECONDS:
            return False
        self._told_at[subject] = now
        return True

    def on_success(self, subject: K, now: float) -> float | None:
        """How long the trouble lasted that is over now, if it was told."""
        since = self._since.pop(subject, now)
        return None if self._told_at.pop(subject, None) is None else now - since
