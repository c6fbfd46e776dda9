"""From lines of input to records: plain lines, JSON written by a schema, `--json`. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple, Protocol, TypeAlias

from moldau.errors import ConfigurationError, SchemaEncodingError
from moldau.records.record import Headers

# From lines of input to records. Pure.
#
# Lines are read some thousands at a time, and so are they parsed: a step for each line would cost
# more than all the rest of `moldau produce`.


Payload = bytes | None
ParsedRow = tuple[int | None, Payload, Payload, Headers]
"""A record whose line says more than key and value; without a timestamp it gets the present."""


class ParsedLines(NamedTuple):
    """Records of consecutive lines that go to one place, as `Producer.send_many` takes them."""

    values: Sequence[Payload] | Sequence[ParsedRow]
    keys: Sequence[Payload] | None = None
    partition: int | None = None  # None: the command decides


class Parser(Protocol):
    """Reads lines in one of the forms of `moldau produce`."""

    def parse(self, lines: Sequence[bytes], first_number: int) -> Iterator[ParsedLines]:
        """What the lines say. A line that cannot be read is raised after those before it.

        `first_number` counts from 1, for the message about such a line.
        """


class LineParser:
    """Splits lines at a separator, if there is one; a marker stands for "no key" or "no value"."""

    def __init__(
        self,
        key_separator: str | None = None,
        null_marker: str | None = None,
        key: str | None = None,
    ) -> None:
        """A `key` is that of every line; then there is no separator."""
        self._separator = None if key_separator is None else key_separator.encode()
        self._key = None if key is None else key.encode()
        self._null_marker = None if null_marker is None else null_marker.encode()

    def parse(self, lines: Sequence[bytes], first_number: int) -> Iterator[ParsedLines]:
        separator = self._separator
        if separator is None:
            keys_of_all = None if self._key is None else [self._key] * len(lines)
            yield ParsedLines(self._with_nulls(lines), keys_of_all)
            return
        keys, found, values = zip(*[line.partition(separator) for line in lines], strict=True)
        count = found.index(b"") if b"" in found else len(found)
        if count:
            yield ParsedLines(self._with_nulls(values[:count]), self._with_nulls(keys[:count]))
        if count < len(found):
            raise ConfigurationError(
                f"line {first_number + count} has no key separator {separator.decode()!r}: "
                f"{first_words(lines[count])}"
            )

    def _with_nulls(self, texts: Sequence[bytes]) -> Sequence[Payload]:
        marker = self._null_marker
        if marker is None or marker not in texts:
            return texts
        return [None if text == marker else text for text in texts]


def first_words(line: bytes) -> str:
    """Enough of a line to recognise it."""
    text = line.decode(errors="replace")
    return repr(text if len(text) <= 40 else text[:40] + "…")


Encode: TypeAlias = Callable[[object], bytes | None]
"""From a document to the bytes of a key or value."""


class EncodedLineParser:
    """What a parser of lines of text gives, with keys or values encoded."""

    def __init__(self, lines: LineParser, key: Encode | None, value: Encode | None) -> None:
        self._lines = lines
        self._key = key
        self._value = value

    def parse(self, lines: Sequence[bytes], first_number: int) -> Iterator[ParsedLines]:
        number = first_number
        for parsed in self._lines.parse(lines, first_number):
            values: list[Payload] = []
            keys: list[Payload] | None = None if parsed.keys is None else []
            refusal: ConfigurationError | None = None
            for index, value in enumerate(parsed.values):
                try:
                    encoded = _encode(self._value, value, "value")  # type: ignore[arg-type]
                    if keys is not None and parsed.keys is not None:
                        keys.append(_encode(self._key, parsed.keys[index], "key"))
                except ValueError as error:
                    line = first_words(lines[number + index - first_number])
                    refusal = ConfigurationError(f"line {number + index} {error}: {line}")
                    break
                values.append(encoded)
            if values:
                yield ParsedLines(values, keys, parsed.partition)
            if refusal is not None:
                raise refusal
            number += len(parsed.values)


def _encode(encode: Encode | None, text: Payload, field: str) -> Payload:
    if encode is None or text is None:
        return text
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"has a {field} that is no JSON") from None
    return encode_document(encode, document, field)


def encode_document(encode: Encode, document: object, field: str) -> bytes | None:
    """Raises ValueError that says where the document does not fit."""
    try:
        return encode(document)
    except SchemaEncodingError as error:
        raise ValueError(f"has a {field} that does not fit its schema: {error}") from None


# From a line of JSON to a record: the form in which `moldau consume --json` prints them. Pure.
#
#     {"key": "k", "value": "v", "headers": [{"key": "h", "value": "w"}],
#      "partition": 0, "timestamp_ms": 1700000000000}
#
# Only the value has to be there. Bytes that are no UTF-8 text stand under `…_base64` instead. A key
# or value that is not a text is sent as JSON. `topic`, `offset` and `delivery_count` tell how the
# record came, and have no say in where it goes; nor have the numbers of schemas, and what was wrong
# with a record.


_encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

_FIELDS = frozenset(
    {
        *("key", "key_base64", "value", "value_base64"),
        *("headers", "partition", "timestamp_ms", "topic", "offset", "delivery_count"),
        *("key_schema_id", "value_schema_id", "key_error", "value_error"),
    }
)

Document = Mapping[str, object]


_NUMBERS: Final = range(1 << 63)


class _Line(NamedTuple):
    """What a line says."""

    partition: int | None
    row: ParsedRow


class JsonLineParser:
    """Reads one object from each line; `headers` come before those that a line has of its own."""

    def __init__(
        self, headers: Headers = (), key: Encode | None = None, value: Encode | None = None
    ) -> None:
        """With `key` or `value`, these are documents that it encodes; bytes under `…_base64` stay
        as they are."""
        self._headers = headers
        self._encode = {"key": key, "value": value}

    def parse(self, lines: Sequence[bytes], first_number: int) -> Iterator[ParsedLines]:
        read: list[_Line] = []
        refusal: ConfigurationError | None = None
        for number, line in enumerate(lines, first_number):
            try:
                read.append(self._read(_read_object(line)))
            except ValueError as error:  # of JSON, base64 and UTF-8, too
                refusal = ConfigurationError(f"line {number} {error}: {first_words(line)}")
                break
        for partition, same in groupby(read, key=itemgetter(0)):
            yield ParsedLines([row for _, row in same], partition=partition)
        if refusal is not None:
            raise refusal

    def _read(self, document: Document) -> _Line:
        if "value" not in document and "value_base64" not in document:
            raise ValueError("has no value")
        headers = self._headers + _read_headers(document.get("headers"))
        return _Line(
            _read_number(document, "partition"),
            (
                _read_number(document, "timestamp_ms"),
                _read_bytes(document, "key", self._encode["key"]),
                _read_bytes(document, "value", self._encode["value"]),
                headers,
            ),
        )


def _read_object(line: bytes) -> Document:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("is no JSON") from None
    if not isinstance(document, dict):
        raise ValueError("is no JSON object")
    unknown = document.keys() - _FIELDS
    if unknown:
        raise ValueError(f"has {min(unknown)!r}, which means nothing here")
    return document


def _read_bytes(document: Document, name: str, encode: Encode | None = None) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(str(encoded), validate=True)
        except binascii.Error:
            raise ValueError(f"has a {name}_base64 that is none") from None
    found = document.get(name)
    if found is None:
        return None
    if encode is not None:
        return encode_document(encode, found, name)
    return (found if isinstance(found, str) else _encode_json(found)).encode()


def _read_headers(found: object) -> Headers:
    if found is None:
        return ()
    if not isinstance(found, list) or not all(_is_header(one) for one in found):
        raise ValueError('has headers that are no list of {"key": ..., "value": ...}')
    for one in found:
        one["key"].encode()  # raises for what is no text in UTF-8
    return tuple((one["key"], _read_bytes(one, "value")) for one in found)


def _is_header(found: object) -> bool:
    return isinstance(found, dict) and isinstance(found.get("key"), str)


def _read_number(document: Document, name: str) -> int | None:
    found = document.get(name)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or found not in _NUMBERS:
        raise ValueError(f"has a {name} that is no number")
    return found
