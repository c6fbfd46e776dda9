"""The bytes of `store_messages` on a Unix socket: a frame of JSON behind its length. A codec.

Both ends are of one version, since a supervisor starts the brokers that ask it. A message is an
array that begins with its kind; data of nodes is text of Latin-1, one character for a byte. What
cannot be read raises `ValueError`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, assert_never

from moldau.coordination import port
from moldau.coordination.port import Check, CoordinationError, Create, Delete, Node, SetData
from moldau.coordination.store_messages import (
    AddWatch,
    Bye,
    Expired,
    Hello,
    Ping,
    ReadChildren,
    ReadNodes,
    RemoveWatch,
    Result,
    StoreAnswer,
    ToClient,
    Told,
    ToService,
    WatchPlace,
    Welcome,
    Write,
)
from moldau.coordination.tree import (
    DeleteTree,
    EndSession,
    EnsureParents,
    TreeOperation,
    TreeOutcome,
)
from moldau.coordination.watches import WatchKind

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


def encode_answer(message: ToClient) -> bytes:
    """The whole frame of the service's message."""
    return _encode(_from_answer(message))


def decode_request(data: bytes) -> ToService:
    """The body of a client's frame."""
    return _decode(data, _REQUESTS)


def decode_answer(data: bytes) -> ToClient:
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
        case Hello():
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
        case Bye():
            return ["bye", message.number]
        case AddWatch():
            return ["watch", *_from_place(message.place)]
        case RemoveWatch():
            return ["unwatch", *_from_place(message.place)]
    assert_never(message)


def _from_answer(message: ToClient) -> _Fields:
    match message:
        case Welcome():
            return ["welcome", message.session_id]
        case Expired():
            return ["expired"]
        case StoreAnswer():
            return ["answer", message.number, _from_result(message.result), message.seen]
        case Told():
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
) -> Hello:
    return Hello(
        session_id=session_id,
        timeout_seconds=timeout,
        watches=tuple(_to_place(*place) for place in places),
        seen=seen,
        process_id=process_id,
    )


def _answer(number: int, result: _Fields | None, seen: int) -> StoreAnswer:
    return StoreAnswer(number=number, result=_to_result(result), seen=seen)


_REQUESTS: Final[Mapping[str, Callable[..., ToService]]] = {
    "hello": _hello,
    "ping": lambda number: Ping(number=number),
    "nodes": lambda number, paths: ReadNodes(number=number, paths=tuple(paths)),
    "children": lambda number, path: ReadChildren(number=number, path=path),
    "write": lambda number, operations: Write(
        number=number, operations=tuple(map(_to_operation, operations))
    ),
    "bye": lambda number: Bye(number=number),
    "watch": lambda kind, path: AddWatch(place=_to_place(kind, path)),
    "unwatch": lambda kind, path: RemoveWatch(place=_to_place(kind, path)),
}
_ANSWERS: Final[Mapping[str, Callable[..., ToClient]]] = {
    "welcome": lambda session_id: Welcome(session_id=session_id),
    "expired": lambda: Expired(),
    "answer": _answer,
    "told": lambda kind, path, seen: Told(place=_to_place(kind, path), seen=seen),
}
