"""What a served store and its clients send each other: messages, their bytes, and the socket.

A session is one conversation (`ConnectRequest`, then requests by number) that may continue over
another connection. `served.session` is the client; `served.server` serves the embedded store of
one machine; `moldau.simulation.coordination_service` is the service of a simulated cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar, assert_never

from moldau.coordination import port
from moldau.coordination.port import Check, CoordinationError, Create, Delete, Node, SetData
from moldau.coordination.tree import (
    DeleteTree,
    EndSession,
    EnsureParents,
    TreeOperation,
    TreeOutcome,
    WatchKind,
)


class WatchPlace(NamedTuple):
    kind: WatchKind
    path: str


# From a client


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectRequest:
    """Asks for a new session (`session_id` 0), or comes back to one."""

    session_id: int
    timeout_seconds: float
    watches: Sequence[WatchPlace]
    seen: int  # the last change that the client knows of
    process_id: int = 0  # of the client, where the service can see it end; 0 elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNodes:
    number: int
    paths: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChildren:
    number: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    number: int
    operations: Sequence[TreeOperation]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSession:
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWatch:
    place: WatchPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveWatch:
    place: WatchPlace


ToService = (
    ConnectRequest | Ping | ReadNodes | ReadChildren | Write | CloseSession | AddWatch | RemoveWatch
)


# From the service


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectResponse:
    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExpired:
    """The session that the client speaks of is over."""


Result = (
    Sequence[Node | None]
    | Sequence[str]
    | Sequence[TreeOutcome]
    | CoordinationError
    | ValueError
    | None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreResponse:
    number: int
    result: Result
    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """Something changed at a place that is watched."""

    place: WatchPlace
    seen: int


ToClient = ConnectResponse | SessionExpired | StoreResponse | WatchEvent


# The bytes of the messages on a Unix socket: a frame of JSON behind its length. A codec.
#
# Both ends are of one version, since a supervisor starts the brokers that ask it. A message is an
# array that begins with its kind; data of nodes is text of Latin-1, one character for a byte. What
# cannot be read raises `ValueError`.


MAX_FRAME_BYTES: Final = 256 << 20
"""Beyond it, what came is no message: everything of a store can be read in one."""

LENGTH: Final = struct.Struct(">I")

T = TypeVar("T")

_Fields = list[Any]

_ERRORS: Final[Mapping[str, type[Exception]]] = {
    kind.__name__: kind
    for kind in (
        port.CoordinationError,
        port.NoNodeError,
        port.NodeExistsError,
        port.BadVersionError,
        port.NotEmptyError,
        port.EphemeralParentError,
        port.NoAccessError,
        port.SessionExpiredError,
        port.StoreLostError,
        ValueError,
    )
}


def encode_request(message: ToService) -> bytes:
    """The whole frame of a client's message."""
    return _encode(_from_request(message))


def encode_response(message: ToClient) -> bytes:
    """The whole frame of the service's message."""
    return _encode(_from_answer(message))


def decode_request(data: bytes) -> ToService:
    """The body of a client's frame."""
    return _decode(data, _REQUESTS)


def decode_response(data: bytes) -> ToClient:
    """The body of the service's frame."""
    return _decode(data, _ANSWERS)


def _encode(fields: _Fields) -> bytes:
    data = json.dumps(fields, separators=(",", ":")).encode()
    return LENGTH.pack(len(data)) + data


def _decode(data: bytes, kinds: Mapping[str, Callable[..., T]]) -> T:
    try:
        kind, *fields = json.loads(data)
        return kinds[kind](*fields)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"no message of a store: {error!r}") from error


def _from_request(message: ToService) -> _Fields:
    match message:
        case ConnectRequest():
            places = [_from_place(place) for place in message.watches]
            seconds, seen = message.timeout_seconds, message.seen
            return ["hello", message.session_id, seconds, places, seen, message.process_id]
        case Ping():
            return ["ping", message.number]
        case ReadNodes():
            return ["nodes", message.number, list(message.paths)]
        case ReadChildren():
            return ["children", message.number, message.path]
        case Write():
            return ["write", message.number, [_from_operation(one) for one in message.operations]]
        case CloseSession():
            return ["bye", message.number]
        case AddWatch():
            return ["watch", *_from_place(message.place)]
        case RemoveWatch():
            return ["unwatch", *_from_place(message.place)]
    assert_never(message)


def _from_answer(message: ToClient) -> _Fields:
    match message:
        case ConnectResponse():
            return ["welcome", message.session_id]
        case SessionExpired():
            return ["expired"]
        case StoreResponse():
            return ["answer", message.number, _from_result(message.result), message.seen]
        case WatchEvent():
            return ["told", *_from_place(message.place), message.seen]
    assert_never(message)


def _from_place(place: WatchPlace) -> _Fields:
    return [place.kind.name, place.path]


def _to_place(kind: str, path: str) -> WatchPlace:
    return WatchPlace(WatchKind[kind], path)


# Operations


def _from_operation(operation: TreeOperation) -> _Fields:
    match operation:
        case Create():
            data = _from_bytes(operation.data)
            return ["create", operation.path, data, operation.ephemeral, operation.sequential]
        case SetData():
            return ["set", operation.path, _from_bytes(operation.data), operation.version]
        case Delete():
            return ["delete", operation.path, operation.version]
        case Check():
            return ["check", operation.path, operation.version]
        case EnsureParents():
            return ["parents", operation.path]
        case DeleteTree():
            return ["tree", operation.path]
        case EndSession():
            raise ValueError("a session is ended by its own message")
    assert_never(operation)


def _to_operation(fields: _Fields) -> TreeOperation:
    # By name and without patterns: a topic of a thousand partitions is two thousand of them.
    kind, *values = fields
    return _OPERATIONS[kind](*values)


def _to_create(path: str, data: str, ephemeral: bool, sequential: bool) -> Create:
    if type(ephemeral) is not bool or type(sequential) is not bool:
        raise ValueError(f"no operation of a store: the kind of {path!r} is not told")
    return Create(
        path=_text(path), data=_to_bytes(data), ephemeral=ephemeral, sequential=sequential
    )


def _to_set(path: str, data: str, version: int) -> SetData:
    return SetData(path=_text(path), data=_to_bytes(data), version=_number(version))


def _text(value: str) -> str:
    if type(value) is not str:
        raise ValueError(f"no operation of a store: {value!r} is no path")
    return value


def _number(value: int) -> int:
    if type(value) is not int:
        raise ValueError(f"no operation of a store: {value!r} is no version")
    return value


_OPERATIONS: Final[Mapping[str, Callable[..., TreeOperation]]] = {
    "create": _to_create,
    "set": _to_set,
    "delete": lambda path, version: Delete(path=_text(path), version=_number(version)),
    "check": lambda path, version: Check(path=_text(path), version=_number(version)),
    "parents": lambda path: EnsureParents(path=_text(path)),
    "tree": lambda path: DeleteTree(path=_text(path)),
}


# Results


def _from_result(result: Result) -> _Fields | None:
    if result is None:
        return None
    if isinstance(result, CoordinationError | ValueError):
        return ["error", type(result).__name__, str(result)]
    return ["list", [_from_item(item) for item in result]]


def _to_result(fields: _Fields | None) -> Result:
    match fields:
        case None:
            return None
        case ["error", str(kind), str(text)]:
            error = _ERRORS[kind](text)
            if isinstance(error, CoordinationError | ValueError):
                return error
        case ["list", list(items)]:
            return [_to_item(item) for item in items]
    raise ValueError(f"no answer of a store: {fields!r}")


def _from_item(item: Node | TreeOutcome | str | None) -> _Fields | str | None:
    match item:
        case None | str():
            return item
        case Node():
            return [
                _from_bytes(item.data),
                item.version,
                item.created_id,
                item.modified_ms,
                item.ephemeral_owner,
            ]
        case TreeOutcome():
            return [item.path, item.version]
    assert_never(item)


def _to_item(item: _Fields | str | None) -> Any:
    match item:
        case None | str():
            return item
        case [path, version]:
            return TreeOutcome(path, version)
        case [data, version, created_id, modified_ms, owner]:
            return Node(
                data=_to_bytes(data),
                version=version,
                created_id=created_id,
                modified_ms=modified_ms,
                ephemeral_owner=owner,
            )
    raise ValueError(f"no item of an answer: {item!r}")


def _from_bytes(data: bytes) -> str:
    return data.decode("latin-1")


def _to_bytes(text: str) -> bytes:
    return text.encode("latin-1")


# Kinds


def _hello(
    session_id: int, timeout: float, places: Sequence[Sequence[str]], seen: int, process_id: int
) -> ConnectRequest:
    return ConnectRequest(
        session_id=session_id,
        timeout_seconds=timeout,
        watches=tuple(_to_place(*place) for place in places),
        seen=seen,
        process_id=process_id,
    )


def _answer(number: int, result: _Fields | None, seen: int) -> StoreResponse:
    return StoreResponse(number=number, result=_to_result(result), seen=seen)


_REQUESTS: Final[Mapping[str, Callable[..., ToService]]] = {
    "hello": _hello,
    "ping": lambda number: Ping(number=number),
    "nodes": lambda number, paths: ReadNodes(number=number, paths=tuple(paths)),
    "children": lambda number, path: ReadChildren(number=number, path=path),
    "write": lambda number, operations: Write(
        number=number, operations=tuple(map(_to_operation, operations))
    ),
    "bye": lambda number: CloseSession(number=number),
    "watch": lambda kind, path: AddWatch(place=_to_place(kind, path)),
    "unwatch": lambda kind, path: RemoveWatch(place=_to_place(kind, path)),
}
_ANSWERS: Final[Mapping[str, Callable[..., ToClient]]] = {
    "welcome": lambda session_id: ConnectResponse(session_id=session_id),
    "expired": lambda: SessionExpired(),
    "answer": _answer,
    "told": lambda kind, path, seen: WatchEvent(place=_to_place(kind, path), seen=seen),
}


# Frames over a connected Unix socket, for both ends of a served store. A shell.
#
# Everything happens on the loop: what cannot be sent at once is kept and sent when there is room.
# The server hears nothing more of a client that leaves `UNREAD_BYTES` unread, so that it owes it no
# more answers, and its session ends by its time-out unless it reads; until then it costs no more
# than the notices of its watches. A client always reads, else both ends could wait for each other.


_READ_BYTES: Final = 1 << 18
UNREAD_BYTES: Final = 4 << 20


Sent = TypeVar("Sent", contravariant=True)


class StoreSocket(Generic[Sent]):
    """One connection. `on_frame` gets the body of each frame; `on_broken` is told of its end once,
    unless it was closed here."""

    def __init__(
        self,
        connected: socket.socket,
        encode: Callable[[Sent], bytes],
        on_frame: Callable[[bytes], None],
        on_broken: Callable[[str], None],
        most_unread_bytes: int | None = None,
    ) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._encode = encode
        self._on_frame = on_frame
        self._on_broken = on_broken
        self._received = bytearray()
        self._to_send = bytearray()
        self._most_unread_bytes = most_unread_bytes
        self._is_reading = True
        self._loop = asyncio.get_running_loop()
        self.is_closed = False
        self._loop.add_reader(connected, self._read)

    def send(self, message: Sent) -> None:
        if self.is_closed:
            return
        frame = self._encode(message)
        if not self._to_send:
            try:
                sent = self._socket.send(frame)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._loop.call_soon(self._break, str(error))
                return
            frame = frame[sent:]
            if frame:
                self._loop.add_writer(self._socket, self._write)
        self._to_send += frame
        self._read_if_read()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            with contextlib.suppress(OSError):
                self._socket.close()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._to_send)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(str(error))
            return
        del self._to_send[:sent]
        if not self._to_send:
            self._loop.remove_writer(self._socket)
        self._read_if_read()

    def _read_if_read(self) -> None:
        """Read on while the other end does."""
        limit = self._most_unread_bytes
        is_reading = limit is None or len(self._to_send) < limit
        if is_reading and not self._is_reading:
            self._loop.add_reader(self._socket, self._read)
            self._loop.call_soon(self._deliver)  # what had come before
        elif self._is_reading and not is_reading:
            self._loop.remove_reader(self._socket)
        self._is_reading = is_reading

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(str(error))
            return
        if not data:
            self._break("the other end closed it")
            return
        self._received += data
        self._deliver()

    def _deliver(self) -> None:
        position = 0
        while (
            not self.is_closed
            and self._is_reading
            and len(self._received) - position >= LENGTH.size
        ):
            (length,) = LENGTH.unpack_from(self._received, position)
            if length > MAX_FRAME_BYTES:
                self._break(f"a frame of {length} bytes is no message")
                return
            end = position + LENGTH.size + length
            if len(self._received) < end:
                break
            frame = bytes(self._received[position + LENGTH.size : end])
            position = end
            try:
                self._on_frame(frame)
            except ValueError as error:
                self._break(str(error))
                return
        del self._received[:position]

    def _break(self, reason: str) -> None:
        if not self.is_closed:
            self.close()
            self._on_broken(reason)
