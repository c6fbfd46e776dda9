"""What happens to a record in `send` before it is put into a batch.

Interceptors see it first, then serializers turn key and value into bytes, then it is a row. All of
it happens in the thread of `send`, so that mistakes are raised where they were made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from moldau.client.producer_values import Interceptor, OutgoingRecord, RecordMetadata
from moldau.clock import Clock
from moldau.records.codec import make_rows
from moldau.records.record import Headers, RecordRow

_log = logging.getLogger(__name__)

Serializer: TypeAlias = Callable[[object], bytes | None]
GivenHeaders: TypeAlias = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

_MAX_TIMESTAMP_MS = (1 << 63) - 1
_ROWS_AT_ONCE = 4096
"""How many records of a `send_many` are looked at together."""


class RecordPreparer:
    """Prepares the records of one producer. Safe for threads if the user's functions are."""

    def __init__(
        self,
        clock: Clock,
        key_serializer: Serializer | None,
        value_serializer: Serializer | None,
        interceptors: Sequence[Interceptor],
    ) -> None:
        self._clock = clock
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self.interceptors = tuple(interceptors)

    @property
    def is_plain(self) -> bool:
        """Whether bytes are sent as they are."""
        return not (self._key_serializer or self._value_serializer or self.interceptors)

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
        return topic, partition, self._make_row(value, key, timestamp_ms, headers)

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
        self, value: object, key: object, timestamp_ms: int | None, headers: GivenHeaders
    ) -> RecordRow:
        """A row from what `send` was given."""
        if self._value_serializer is not None:
            value = self._value_serializer(value)
        if self._key_serializer is not None:
            key = self._key_serializer(key)
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
                yield OutgoingRecord("", content, key, None, own_ms, own_headers or shared)
            else:
                yield OutgoingRecord("", value, None, None, timestamp_ms, shared)

    def make_rows(
        self,
        values: Iterable[object],
        keys: Iterable[object] | None,
        timestamp_ms: int | None,
        headers: GivenHeaders,
    ) -> Iterable[list[RecordRow]]:
        """Rows from what `send_many` was given, some thousands at a time."""
        shared = make_headers(headers) if headers else ()
        if timestamp_ms is not None:
            require_timestamp(timestamp_ms)
        source = iter(values)
        key_source = None if keys is None else iter(keys)
        while chunk := list(islice(source, _ROWS_AT_ONCE)):
            now_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
            if isinstance(chunk[0], tuple) and key_source is None:
                yield [self._make_given_row(row, now_ms, shared) for row in chunk]
                continue
            chunk_keys = None if key_source is None else list(islice(key_source, len(chunk)))
            yield self._make_plain_rows(chunk, chunk_keys, now_ms, shared)
        if key_source is not None and next(key_source, None) is not None:
            raise ValueError("there are more keys than values")

    def _make_plain_rows(
        self, values: list[object], keys: list[object] | None, now_ms: int, headers: Headers
    ) -> list[RecordRow]:
        if self._value_serializer is not None:
            values = [self._value_serializer(value) for value in values]
        if keys is not None and self._key_serializer is not None:
            keys = [self._key_serializer(key) for key in keys]
        # It refuses what is neither bytes nor None.
        return make_rows(values, keys, now_ms, headers)  # type: ignore[arg-type]

    def _make_given_row(self, row: object, now_ms: int, shared: Headers) -> RecordRow:
        if not isinstance(row, tuple) or len(row) < 4:
            raise TypeError(
                "a row is a tuple that ends with timestamp, key, value and headers, such as "
                f"NewRecord; this is {row!r:.80}"
            )
        timestamp_ms, key, value, headers = row[-4:]
        return self._make_row(
            value, key, now_ms if timestamp_ms is None else timestamp_ms, headers or shared
        )


def as_payload(content: object, field: str) -> bytes | None:
    """The bytes of a key or value, copied where the caller could still change them."""
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    advice = f"{field}_serializer=str.encode" if isinstance(content, str) else f"{field}_serializer"
    raise TypeError(
        f"the {field} is {type(content).__name__}, not bytes; encode it, or give the producer a "
        f"serializer ({advice})"
    )


def make_headers(headers: GivenHeaders) -> Headers:
    """Headers from a mapping or from pairs."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((_require_name(name), as_payload(value, "header")) for name, value in pairs)


def require_timestamp(timestamp_ms: int) -> int:
    if not isinstance(timestamp_ms, int) or not 0 <= timestamp_ms <= _MAX_TIMESTAMP_MS:
        raise ValueError(f"a timestamp is a number of milliseconds since 1970, not {timestamp_ms}")
    return timestamp_ms


def _require_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"a header's name is text, not {type(name).__name__}")
    return name
