"""What happens to a record in `send` before it is put into a batch.

Interceptors see it first, then serializers turn key and value into bytes, then it is a row. All of
it happens in the thread of `send`, so that mistakes are raised where they were made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, Protocol, TypeAlias

from moldau.client.producer.produce_result import Interceptor, OutgoingRecord, RecordMetadata
from moldau.client.rules.arguments import require_function, wrong_type
from moldau.clock import Clock
from moldau.records.codec import make_rows
from moldau.records.record import Headers, RecordRow

_log = logging.getLogger("moldau.client")

Serializer: TypeAlias = Callable[[Any], bytes | None]
"""Any: `str.encode` takes texts and nothing else, and is what users give."""


class TopicSerializer(Protocol):
    """A serializer for which the topic counts; `moldau.schemas` has one."""

    def for_topic(self, topic: str, field: Literal["key", "value"], /) -> Serializer:
        """What serializes the keys or values of a topic. Asked once, and may wait for others."""


GivenSerializer: TypeAlias = Serializer | TopicSerializer
_Serializers: TypeAlias = tuple[Serializer | None, Serializer | None]
GivenHeaders: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

_MAX_TIMESTAMP_MS = (1 << 63) - 1
_ROWS_AT_ONCE = 4096
"""How many records of a `send_many` are looked at together."""


class NotSerializedError(Exception):
    """A record whose serializers have to be asked for its topic first; interceptors saw it."""

    def __init__(self, record: OutgoingRecord) -> None:
        super().__init__(record.topic)
        self.record = record


class RecordSerializer:
    """Prepares the records of one producer. Safe for threads if the user's functions are."""

    def __init__(
        self,
        clock: Clock,
        key_serializer: GivenSerializer | None,
        value_serializer: GivenSerializer | None,
        interceptors: Sequence[Interceptor],
    ) -> None:
        for field, one in (("key", key_serializer), ("value", value_serializer)):
            name = f"{field}_serializer"
            require_function(one, name, example="str.encode", method="for_topic")
        self._clock = clock
        self._given = (key_serializer, value_serializer)
        self._by_topic: dict[str, _Serializers] = {}  # where the topic counts
        self._of_all: _Serializers | None = None  # where it does not
        if not any(hasattr(one, "for_topic") for one in self._given):
            self._of_all = self._given  # type: ignore[assignment]  # then they are functions
        require_several("interceptors", interceptors)
        self.interceptors = tuple(interceptors)
        for interceptor in self.interceptors:
            if not hasattr(interceptor, "on_send"):
                wanted = "objects with on_send and on_acknowledgement"
                raise wrong_type("interceptors", wanted, interceptor)

    @property
    def is_plain(self) -> bool:
        """Whether bytes are sent as they are."""
        return self._of_all == (None, None) and not self.interceptors

    @property
    def serializes(self) -> tuple[bool, bool]:
        """Whether there are serializers for keys and for values."""
        key, value = self._given
        return key is not None, value is not None

    def is_ready_for(self, topic: str) -> bool:
        """Whether the serializers for a topic are known."""
        return self._of_all is not None or topic in self._by_topic

    def find_serializers(self, topic: str) -> None:
        """Have the serializers for a topic known; waits for as long as they take."""
        key, value = self._given
        self._by_topic[topic] = _for_topic(key, topic, "key"), _for_topic(value, topic, "value")

    def prepare(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> tuple[str, int | None, RecordRow]:
        """Where a record is to go, and its row, after interceptors and serializers have seen it."""
        if self.interceptors:
            given = make_headers(headers) if headers else ()
            topic, value, key, partition, timestamp_ms, headers = self._intercept(
                OutgoingRecord(topic, value, key, partition, timestamp_ms, given)
            )
        found = self._of_all or self._by_topic.get(topic)
        if found is None:
            given = make_headers(headers) if headers else ()
            raise NotSerializedError(
                OutgoingRecord(topic, value, key, partition, timestamp_ms, given)
            )
        return topic, partition, self._make_row(found, value, key, timestamp_ms, headers)

    def make_row(self, record: OutgoingRecord) -> RecordRow:
        """Of a record that could not be serialized before."""
        found = self._of_all or self._by_topic[record.topic]
        return self._make_row(found, record.value, record.key, record.timestamp_ms, record.headers)

    def _intercept(self, record: OutgoingRecord) -> OutgoingRecord:
        for interceptor in self.interceptors:
            try:
                record = interceptor.on_send(record)
            except Exception:  # noqa: BLE001 it is not ours, and must not keep records from being sent
                _log.exception("%r failed in on_send", interceptor)
        return record

    def acknowledge(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        for interceptor in self.interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:  # noqa: BLE001 it is not ours
                _log.exception("%r failed in on_acknowledgement", interceptor)

    def _make_row(
        self,
        serializers: _Serializers,
        value: object,
        key: object,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> RecordRow:
        """A row from what `send` was given."""
        key_serializer, value_serializer = serializers
        if value_serializer is not None:
            value = value_serializer(value)
        if key_serializer is not None:
            key = key_serializer(key)
        return (
            self._clock.now_ms() if timestamp_ms is None else require_timestamp(timestamp_ms),
            as_payload(key, "key"),
            as_payload(value, "value"),
            make_headers(headers) if headers else (),
        )

    def pair(
        self,
        values: Iterable[object],
        keys: Iterable[object] | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> Iterable[OutgoingRecord]:
        """Single records from what `send_many` was given, their topic to be filled in."""
        shared = make_headers(headers) if headers else ()
        if keys is not None:
            for value, key in zip(values, keys, strict=True):
                yield OutgoingRecord("", value, key, None, timestamp_ms, shared)
            return
        for value in values:
            if isinstance(value, tuple) and len(value) >= 4:
                own_ms, key, content, own_headers = value[-4:]
                when_ms = timestamp_ms if own_ms is None else own_ms
                yield OutgoingRecord("", content, key, None, when_ms, own_headers or shared)
            else:
                yield OutgoingRecord("", value, None, None, timestamp_ms, shared)

    def make_rows(
        self,
        topic: str,
        values: Iterable[object],
        keys: Iterable[object] | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> Iterable[list[RecordRow]]:
        """Rows from what `send_many` was given, some thousands at a time."""
        shared = make_headers(headers) if headers else ()
        if timestamp_ms is not None:
            require_timestamp(timestamp_ms)
        serializers = self._of_all or self._by_topic[topic]
        source = iter(values)
        key_source = None if keys is None else iter(keys)
        while chunk := list(islice(source, _ROWS_AT_ONCE)):
            now_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
            if isinstance(chunk[0], tuple) and key_source is None:
                yield [self._make_given_row(serializers, row, now_ms, shared) for row in chunk]
                continue
            chunk_keys = None if key_source is None else list(islice(key_source, len(chunk)))
            yield self._make_plain_rows(serializers, chunk, chunk_keys, now_ms, shared)
        if key_source is not None and next(key_source, None) is not None:
            raise ValueError("there are more keys than values")

    def _make_plain_rows(
        self,
        serializers: _Serializers,
        values: list[object],
        keys: list[object] | None,
        now_ms: int,
        headers: Headers,
    ) -> list[RecordRow]:
        key_serializer, value_serializer = serializers
        if value_serializer is not None:
            values = [value_serializer(value) for value in values]
        if keys is not None and key_serializer is not None:
            keys = [key_serializer(key) for key in keys]
        try:
            return make_rows(values, keys, now_ms, headers)  # type: ignore[arg-type]
        except TypeError as error:  # it refuses what is neither bytes nor None
            raise TypeError(
                f"{error}; encode them, or give the producer a serializer (value_serializer, "
                "key_serializer), like str.encode"
            ) from None

    def _make_given_row(
        self, serializers: _Serializers, row: object, now_ms: int, shared: Headers
    ) -> RecordRow:
        if not isinstance(row, tuple) or len(row) < 4:
            raise TypeError(
                "a row is a tuple that ends with timestamp, key, value and headers, such as "
                f"NewRecord; this is {row!r:.80}"
            )
        timestamp_ms, key, value, headers = row[-4:]
        when_ms = now_ms if timestamp_ms is None else timestamp_ms
        return self._make_row(serializers, value, key, when_ms, headers or shared)


def _for_topic(
    given: GivenSerializer | None, topic: str, field: Literal["key", "value"]
) -> Serializer | None:
    find: Callable[..., Serializer] | None = getattr(given, "for_topic", None)
    return given if find is None else find(topic, field)  # type: ignore[return-value]  # a function


def as_payload(content: object, field: str) -> bytes | None:
    """The bytes of a key, value or header, copied where the caller could still change them."""
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    advice = f"{field}_serializer=str.encode" if isinstance(content, str) else f"{field}_serializer"
    advice = f", or give the producer a serializer ({advice})" if field != "header" else ""
    raise TypeError(f"the {field} is {type(content).__name__}, not bytes; encode it{advice}")


def require_several(name: str, given: object) -> None:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong_type(name, "a list", given)


def make_headers(headers: GivenHeaders) -> Headers:
    """Headers from a mapping or from pairs."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple([(_require_name(name), as_payload(value, "header")) for name, value in pairs])
    except (TypeError, ValueError):
        if isinstance(pairs, Iterable) and all(
            isinstance(pair, Sequence) and not isinstance(pair, str | bytes) and len(pair) == 2
            for pair in pairs
        ):
            raise  # it is a name or a value, and told
        raise wrong_type("headers", "a mapping or pairs, like {'trace': b'7'}", headers) from None


def require_timestamp(timestamp_ms: int) -> int:
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= _MAX_TIMESTAMP_MS:
        raise ValueError(
            f"a timestamp is a number of milliseconds since 1970, not {timestamp_ms!r}"
        )
    return timestamp_ms


def _require_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a header's name is text, not {type(name).__name__}")
    return name
