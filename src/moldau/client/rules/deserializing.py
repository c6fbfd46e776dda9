"""What deserializers make of the bytes of records. A rule.

Most are functions of bytes. One that wants a record's headers, too, or has to ask others before it
can read, is an object (`HeadedDeserializer`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from moldau.client.rules.arguments import require_function
from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.errors import LookUpNeededError, MoldauError, RecordDeserializationError
from moldau.model import TopicPartition
from moldau.records.record import Headers

Deserializer = Callable[[bytes], object]


class HeadedDeserializer(Protocol):
    """A deserializer for which a record's headers count; `moldau.schemas` has one.

    It may have to ask others: then it raises LookUpNeededError, and is called again.
    """

    def deserialize_field(
        self, data: bytes, headers: Headers, field: Literal["key", "value"], /
    ) -> object: ...


GivenDeserializer: TypeAlias = Deserializer | HeadedDeserializer
Read: TypeAlias = tuple[list[ConsumerRecord], MoldauError | None]
"""Records up to the first that cannot be read, and what is wrong with it, or needed for it."""


def require_deserializers(key: GivenDeserializer | None, value: GivenDeserializer | None) -> None:
    for field, one in (("key", key), ("value", value)):
        name = f"{field}_deserializer"
        require_function(one, name, example="bytes.decode", method="deserialize_field")


def deserialize_all(
    records: list[ConsumerRecord],
    key_deserializer: GivenDeserializer | None,
    value_deserializer: GivenDeserializer | None,
) -> Read:
    if _is_headed(key_deserializer) or _is_headed(value_deserializer):
        return _deserialize_with_headers(records, key_deserializer, value_deserializer)
    read_key: Deserializer | None = key_deserializer  # type: ignore[assignment]
    read_value: Deserializer | None = value_deserializer  # type: ignore[assignment]
    read: list[ConsumerRecord] = []
    for record in records:
        key: object = record.key
        value: object = record.value
        try:
            if read_key is not None and key is not None:
                key = read_key(record.key or b"")
            if read_value is not None and value is not None:
                value = read_value(record.value or b"")
        except Exception as error:  # noqa: BLE001 the user's function may raise anything
            return read, _unreadable(record, error)
        read.append(record._replace(key=key, value=value))  # type: ignore[arg-type]
    return read, None


def _is_headed(deserializer: GivenDeserializer | None) -> bool:
    return hasattr(deserializer, "deserialize_field")


def _deserialize_with_headers(
    records: list[ConsumerRecord],
    key_deserializer: GivenDeserializer | None,
    value_deserializer: GivenDeserializer | None,
) -> Read:
    read: list[ConsumerRecord] = []
    for record in records:
        try:
            read.append(deserialize_record(record, key_deserializer, value_deserializer))
        except LookUpNeededError as needed:
            return read, needed
        except Exception as error:  # noqa: BLE001 the user's function may raise anything
            return read, _unreadable(record, error)
    return read, None


def deserialize_record(
    record: ConsumerRecord,
    key_deserializer: GivenDeserializer | None,
    value_deserializer: GivenDeserializer | None,
) -> ConsumerRecord:
    """The record with what the deserializers make of its bytes; raises what they raise."""
    key: object = record.key
    value: object = record.value
    if key_deserializer is not None and record.key is not None:
        key = _read_field(key_deserializer, record.key, record.headers, "key")
    if value_deserializer is not None and record.value is not None:
        value = _read_field(value_deserializer, record.value, record.headers, "value")
    return record._replace(key=key, value=value)  # type: ignore[arg-type]


def _read_field(
    deserializer: GivenDeserializer,
    data: bytes,
    headers: Headers,
    field: Literal["key", "value"],
) -> object:
    headed: Callable[..., object] | None = getattr(deserializer, "deserialize_field", None)
    if headed is not None:
        return headed(data, headers, field)
    return deserializer(data)  # type: ignore[operator]  # a function


def _unreadable(record: ConsumerRecord, cause: Exception) -> RecordDeserializationError:
    partition = TopicPartition(record.topic, record.partition)
    failure = RecordDeserializationError(
        f"the record at offset {record.offset} of {partition} cannot be deserialized: {cause}; "
        f"seek to {record.offset + 1} to go on behind it",
        partition,
        record.offset,
    )
    failure.__cause__ = cause
    return failure
