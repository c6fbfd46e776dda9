"""From a line of JSON to a record: the form in which `moldau consume --json` prints them. Pure.

    {"key": "k", "value": "v", "headers": [{"key": "h", "value": "w"}],
     "partition": 0, "timestamp_ms": 1700000000000}

Only the value has to be there. Bytes that are no UTF-8 text stand under `…_base64` instead. A key
or value that is not a text is sent as JSON. `topic`, `offset` and `delivery_count` tell how the
record came, and have no say in where it goes; nor have the numbers of schemas, and what was wrong
with a record.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from moldau.cli.line_encoding import Encode, encode_document
from moldau.cli.line_parser import ParsedLines, ParsedRow, first_words
from moldau.errors import ConfigurationError
from moldau.records.record import Headers

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
