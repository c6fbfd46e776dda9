"""How `moldau consume` shows a record: fixed forms, templates as in kcat, by schemas."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from moldau.cli.output import warn
from moldau.cli.schema_options import FORMATS
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.config.option import suggest
from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaNotFoundError, UsageError
from moldau.records.record import Headers
from moldau.schemas.model import Field
from moldau.schemas.registry import SchemaRegistry
from moldau.schemas.showing import decode_any

Formatter = Callable[[Sequence[ConsumerRecord]], bytes]
_Part = Callable[[ConsumerRecord], bytes]

NULL = b"null"

# Made once: `json.dumps` with separators makes a new encoder for every call.
_encode_json = json.JSONEncoder(separators=(",", ":")).encode

_ESCAPES: Mapping[str, str] = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
_TOKEN = re.compile(r"%(?P<field>.?)|\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.?))", re.DOTALL)

_ESCAPE_TOKEN = re.compile(rb"\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>[\x00-\x7f]?))", re.DOTALL)


def parse_format(text: str) -> Formatter:
    """A formatter for a form's name or a template; raises UsageError."""
    if text in _FORMS:
        return _FORMS[text]
    if "%" in text:
        return _compile(text)

    known = (*_FORMS, *FORMATS)
    choices = f"; choose {', '.join(known)}, or a template like '%p %o %k %v'"
    raise UsageError(f"there is no format {text!r}{suggest(text, known) or choices}")


def _show_values(records: Sequence[ConsumerRecord]) -> bytes:
    values = [NULL if record.value is None else record.value for record in records]
    values.append(b"")
    return b"\n".join(values)


def _show_raw(records: Sequence[ConsumerRecord]) -> bytes:
    return b"".join([record.value for record in records if record.value is not None])


def end_values_with(delimiter: str) -> Formatter:
    """Values as they are, each with a text behind it that is written as in a template."""
    end = read_escapes(delimiter)
    return lambda records: b"".join(
        [NULL + end if one.value is None else one.value + end for one in records]
    )


def read_escapes(text: str) -> bytes:
    """The bytes of a text with \\n, \\0, \\xNN and the like; raises UsageError."""

    def replace(token: re.Match[bytes]) -> bytes:
        code, escape = token["hex"], token["escape"]
        if code is not None:
            return bytes.fromhex(code.decode())
        if escape.decode() not in _ESCAPES:
            raise UsageError(f"{text!r} has {token[0].decode()!r}, which means nothing")
        return _ESCAPES[escape.decode()].encode()

    return _ESCAPE_TOKEN.sub(replace, text.encode(errors="surrogateescape"))


def _show_key_value(record: ConsumerRecord) -> bytes:
    return _or_null(record.key) + b"\t" + _or_null(record.value) + b"\n"


def _show_hex(record: ConsumerRecord) -> bytes:
    return f"{_hex(record.key)}\t{_hex(record.value)}\n".encode()


def show_json(
    record: ConsumerRecord,
    key: Mapping[str, object] | None = None,
    value: Mapping[str, object] | None = None,
    **more: object,
) -> bytes:
    """One object on one line. Bytes that are no UTF-8 text stand under `…_base64` instead. What is
    given for key and value stands in their place."""
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **(bytes_to_document("key", record.key) if key is None else key),
        **(bytes_to_document("value", record.value) if value is None else value),
        "headers": headers_to_document(record.headers),
        **more,
    }
    return _encode_json(document).encode() + b"\n"


def _one_by_one(show: _Part) -> Formatter:
    return lambda records: b"".join([show(record) for record in records])


def headers_to_document(headers: Headers) -> list[dict[str, object]]:
    """A list, since names may repeat."""
    return [
        {"key": name.encode(errors="surrogateescape").decode(errors="replace")}
        | bytes_to_document("value", value)
        for name, value in headers
    ]


def bytes_to_document(name: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(data).decode()}


def _compile(template: str) -> Formatter:
    parts: list[_Part] = []
    position = 0
    for token in _TOKEN.finditer(template):
        _add_text(parts, template[position : token.start()])
        parts.append(_part_for(token, template))
        position = token.end()
    _add_text(parts, template[position:])
    if not _ends_line(template):
        _add_text(parts, "\n")

    return lambda records: b"".join([part(record) for record in records for part in parts])


def _ends_line(template: str) -> bool:
    """Whoever ends the template with a line end or a NUL has thought of separating records."""
    return template.endswith(("%n", "\\n", "\\0", "\n"))


def _add_text(parts: list[_Part], text: str) -> None:
    if text:
        parts.append(partial(_show_text, text.encode()))


def _show_text(text: bytes, record: ConsumerRecord) -> bytes:
    return text


def _part_for(token: re.Match[str], template: str) -> _Part:
    field, code, escape = token["field"], token["hex"], token["escape"]
    if code is not None:
        return partial(_show_text, bytes.fromhex(code))
    if escape in _ESCAPES:
        return partial(_show_text, _ESCAPES[escape].encode())
    if field in _FIELDS:
        return _FIELDS[field]
    fields = " ".join(f"%{name}" for name in _FIELDS)
    raise UsageError(
        f"the format {template!r} has {token[0]!r}, which means nothing; there are {fields}"
    )


def _or_null(data: bytes | None) -> bytes:
    return NULL if data is None else data


def _hex(data: bytes | None) -> str:
    return "null" if data is None else data.hex()


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _show_headers(headers: Headers) -> bytes:
    return b",".join(
        name.encode(errors="surrogateescape") + b"=" + _or_null(value) for name, value in headers
    )


_FORMS: Mapping[str, Formatter] = {
    "value": _show_values,
    "key-value": _one_by_one(_show_key_value),
    "json": lambda records: b"".join([show_json(record) for record in records]),
    "hex": _one_by_one(_show_hex),
    "raw": _show_raw,
}

_FIELDS: Mapping[str, _Part] = {
    "k": lambda record: _or_null(record.key),
    "v": lambda record: _or_null(record.value),
    "s": lambda record: _or_null(record.value),
    "K": lambda record: _length(record.key),
    "V": lambda record: _length(record.value),
    "S": lambda record: _length(record.value),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "h": lambda record: _show_headers(record.headers),
    "n": lambda record: b"\n",
    "%": lambda record: b"%",
}


# Records whose keys or values are of a schema registry: as JSON, in any form of `--format`


_MOST_WARNINGS: Final = 10

_encode_line = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedFields:
    """What is decoded, in words of `schema_options.FORMATS`; None is left as it is."""

    key: str | None
    value: str | None

    def wanted(self, field: Field) -> str | None:
        return self.key if field == "key" else self.value


class RecordDecoding:
    """A formatter around another one. It waits for the registry: to be called in a thread."""

    def __init__(
        self,
        registry: SchemaRegistry,
        fields: DecodedFields,
        formatter: Formatter,
        *,
        as_json: bool,
    ) -> None:
        self._registry = registry
        self._fields = fields
        self._formatter = formatter
        self._as_json = as_json
        self.failed_count = 0

    def __call__(self, records: Sequence[ConsumerRecord]) -> bytes:
        if self._as_json:
            return b"".join([self.show_json(one) for one in records])
        return self._formatter([self._as_text(one) for one in records])

    def show_json(self, record: ConsumerRecord, **more: object) -> bytes:
        """As `record_format.show_json`, with documents in place of bytes."""
        key, value = self._document_of(record, "key"), self._document_of(record, "value")
        return show_json(record, key, value, **more)

    def _document_of(self, record: ConsumerRecord, field: Field) -> dict[str, object] | None:
        data = record.key if field == "key" else record.value
        wanted = self._fields.wanted(field)
        if wanted is None or data is None:
            return None
        found = self._decode(record, field, data, wanted)
        if isinstance(found, str):
            return {field + "_base64": base64.b64encode(data).decode(), field + "_error": found}
        key = str(found.guid) if found.id is None else found.id
        return {field: found.value, field + "_schema_id": key}

    def _as_text(self, record: ConsumerRecord) -> ConsumerRecord:
        return record._replace(
            key=self._text_of(record, "key"), value=self._text_of(record, "value")
        )

    def _text_of(self, record: ConsumerRecord, field: Field) -> bytes | None:
        data = record.key if field == "key" else record.value
        wanted = self._fields.wanted(field)
        if wanted is None or data is None:
            return data
        found = self._decode(record, field, data, wanted)
        if isinstance(found, str):
            document: object = {"error": found, "base64": base64.b64encode(data).decode()}
        else:
            document = found.value
        return _encode_line(document).encode(errors="surrogatepass")

    def _decode(
        self, record: ConsumerRecord, field: Field, data: bytes, wanted: str
    ) -> _Found | str:
        """What it says, or what is wrong with it."""
        try:
            found = decode_any(self._registry, data, record.headers, field)
            if FORMATS[wanted] not in (None, found.type):
                raise SchemaDecodingError(
                    f"the {field} is {found.type}, not {wanted}; the format registry takes any"
                )
        except (SchemaDecodingError, SchemaNotFoundError, ConfigurationError) as error:
            self._count_failure(record, str(error))
            return str(error)
        return _Found(found.value, found.id, found.guid)

    def _count_failure(self, record: ConsumerRecord, problem: str) -> None:
        self.failed_count += 1
        if self.failed_count <= _MOST_WARNINGS:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            warn(f"{where} is not decoded: {problem}")
        if self.failed_count == _MOST_WARNINGS:
            warn("further records that are not decoded are only counted")

    def raise_failures(self) -> None:
        """Raises when something could not be decoded."""
        if self.failed_count:
            what = "1 key or value was" if self.failed_count == 1 else f"{self.failed_count} were"
            raise SchemaDecodingError(f"{what} not decoded, and printed as base64")


@dataclass(frozen=True, slots=True)
class _Found:
    value: object
    id: int | None
    guid: object
