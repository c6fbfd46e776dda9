"""Errors on request: the next answers of an API are what a test wants a client to be told."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType, NoneType, UnionType
from typing import TYPE_CHECKING, Final, cast, get_args, get_origin

from moldau.config.option import suggest
from moldau.errors import KafkaError, MalformedFrameError
from moldau.net.port import Connection
from moldau.simulation.fault_plan import Fault, FaultTable
from moldau.wire.apis import SERVED
from moldau.wire.headers import RequestHeader, read_request_header, response_prefix
from moldau.wire.messages import encode_body, parse_request
from moldau.wire.versions import response_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kio.schema.errors import ErrorCode
    from kio.static.protocol import Payload


InjectedError = type[KafkaError] | type[ConnectionResetError] | str | int
"""One of `moldau.errors`, or Kafka's name or number of it; `ConnectionResetError` ends the
connection instead."""


class InjectedErrors:
    """Which requests are answered with an error instead of by the broker."""

    def __init__(self) -> None:
        self._faults: FaultTable[ErrorCode | None] = FaultTable()
        self._apis = {api.key: api.snake_name for api in SERVED}

    def add(
        self, api: str, error: InjectedError, *, times: int | None, broker_id: int | None, skip: int
    ) -> Fault[ErrorCode | None]:
        known = set(self._apis.values())
        if api not in known:
            hint = suggest(api, known) or f"; there are {', '.join(sorted(known))}"
            raise ValueError(f"{api!r} is no API{hint}")
        subject = "*" if broker_id is None else str(broker_id)
        return self._faults.add(api, _code_of(error), matching=subject, skip=skip, count=times)

    def intercept(self, broker_id: int, connection: Connection, frame: memoryview) -> bool:
        """Whether the request was answered here."""
        try:
            header, position = read_request_header(frame)
        except MalformedFrameError:
            return False  # the broker's matter; it may be a message of SASL without headers
        name = self._apis.get(header.api_key, "")
        fault = self._faults.find_fault(name, str(broker_id))
        if fault is None:
            return False
        if fault.outcome is None:
            connection.close("as the test wants it")
        else:
            connection.send(error_answer(frame, header, position, fault.outcome))
        return True


def _code_of(error: InjectedError) -> ErrorCode | None:
    codes = type(KafkaError.code)
    if isinstance(error, str):
        names = [code.name for code in codes]
        if error.lower() not in names:
            raise ValueError(f"{error!r} is no error of Kafka{suggest(error.lower(), names)}")
        return codes[error.lower()]
    if isinstance(error, int):
        return codes(error)  # says itself which number it does not know
    return error.code if issubclass(error, KafkaError) else None


# Answers with an error, for any API and version: what a test wants a client to be told.
#
# The answer names what the request named (its topics and partitions), each with the error code;
# where the request names nothing, the error is that of the whole answer. Through kio's classes, so
# it is right for every version.


_ZEROS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "bool": False,
        "string": "",
        "bytes": b"",
        "records": b"",
        "float64": 0.0,
        "uuid": None,
        "timedelta_i32": timedelta(),
        "timedelta_i64": timedelta(),
        "datetime_i64": datetime(1970, 1, 1, tzinfo=UTC),
    }
)
_PLAIN: Final[Mapping[str, type]] = MappingProxyType(
    {"partition_index": int, "name": str, "group_id": str}
)
_UNKNOWN: Final = frozenset({"leader_id", "leader_epoch"})
"""Of a leader that the answer does not name."""
_TWINS: Final = (("partition_index", "index", "partition"), ("name", "topic"))
"""Fields that mean the same in a request and its answer."""


def error_answer(
    frame: memoryview, header: RequestHeader, position: int, code: ErrorCode
) -> list[bytes]:
    """The whole answer to this request, ready to be sent."""
    version = header.api_version
    request = parse_request(header.api_key, version, frame, position)
    shape = response_class(header.api_key, version)
    has_places = _count_codes(_build(shape, request, None, code), code) > 0
    answer = _build(shape, request, None if has_places else code, code)
    body = encode_body(cast("Payload", answer))
    return [response_prefix(header.api_key, version, header.correlation_id, len(body)) + body]


def _build(
    entity_class: type, told: object, own_code: ErrorCode | None, inner_code: ErrorCode
) -> object:
    """An entity that echoes `told`. `own_code` is for its own error code, None for no error."""
    arrays = _arrays_of(told)
    values: dict[str, object] = {}
    for field in fields(entity_class):
        element = _element_of(field)
        if element is not None:
            elements = arrays.pop(0) if arrays else ()
            values[field.name] = tuple(
                _build(element, each, inner_code, inner_code) for each in elements
            )
        elif field.metadata.get("kafka_type") == "error_code":
            values[field.name] = own_code if own_code is not None else type(inner_code)(0)
        elif isinstance(field.type, type) and is_dataclass(field.type):
            values[field.name] = _build(field.type, None, None, inner_code)
        else:
            values[field.name] = _echo(field, told)
    return entity_class(**values)


def _arrays_of(told: object) -> list[Sequence[object]]:
    """The arrays of structures in a request, in order: topics, and partitions in these."""
    if not is_dataclass(told):
        return []
    found: list[Sequence[object]] = []
    for field in fields(told):
        value = getattr(told, field.name)
        if isinstance(value, tuple) and get_origin(_without_none(field.type)) is tuple:
            found.append(value)
    return found


def _echo(field: Field[object], told: object) -> object:
    if isinstance(told, _PLAIN.get(field.name, ())):
        return told  # an element of an array of plain names or numbers
    for twins in (*_TWINS, (field.name,)):
        if field.name in twins:
            for twin in twins:
                if hasattr(told, twin):
                    return getattr(told, twin)
    if field.default is not MISSING:
        return field.default
    if field.name in _UNKNOWN:
        return -1
    kind = _without_none(field.type)
    if kind is not field.type:
        return None
    return () if get_origin(kind) is tuple else _ZEROS.get(field.metadata["kafka_type"], 0)


def _element_of(field: Field[object]) -> type | None:
    """The class of the elements, for an array of structures."""
    kind = _without_none(field.type)
    if get_origin(kind) is not tuple:
        return None
    element = _without_none(get_args(kind)[0])
    return element if isinstance(element, type) and is_dataclass(element) else None


def _without_none(annotation: object) -> object:
    if get_origin(annotation) is not UnionType:
        return annotation
    return next(member for member in get_args(annotation) if member is not NoneType)


def _count_codes(entity: object, code: ErrorCode) -> int:
    count = 0
    for field in fields(entity):  # type: ignore[arg-type]  # one of kio's classes
        value = getattr(entity, field.name)
        if isinstance(value, tuple):
            count += sum(_count_codes(each, code) for each in value if is_dataclass(each))
        else:
            count += value is code
    return count
