"""How `moldau consume` shows a record: fixed forms, or a template in kcat's manner.

    %v %s  value            %V %S  its length (-1: none)      %t  topic        %T  timestamp in ms
    %k     key              %K     its length                 %p  partition    %h  headers
    %n     a line end       %%     a percent sign             %o  offset
    \\n \\r \\t \\0 \\\\ and \\xNN as in C

Answers for turning records into bytes; values pass through as they are. Records come some
thousands at a time. Pure.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.errors import UsageError
from moldau.records.record import Headers

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
    from moldau.cli.schema_options import FORMATS
    from moldau.config.option import suggest

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
