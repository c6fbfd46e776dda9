"""Records as people read them and take them away: by schema, JSON, text, hex, CSV. Rules."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.ops.formatting import size_text, time_text

# Keys and values as people read them: by their schema, as JSON, text or hex.
#
# A value may be anything, and megabytes of it. What is kept of a record for a session is cut, and
# says so; what a row shows is a line of it.


KEPT_BYTES = 64 * 1024
"""Of a key or a value: more is not kept for a session, and not sent to a browser."""

PREVIEW_CHARACTERS = 160
_HEX_COLUMNS = 16
_HEX_BYTES = 8 * 1024
_MAX_HEADERS = 100


class Format(StrEnum):
    """How a key or value is shown; AUTO takes the first of the others that fits."""

    AUTO = "auto"
    SCHEMA = "schema"
    JSON = "JSON"
    TEXT = "text"
    HEX = "hex"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaReading:
    """What a schema says that bytes mean; or why they could not be read by it."""

    text: str = ""
    schema: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """A key or a value as far as it is kept; None is a null, which is not the empty one."""

    data: bytes | None
    size_bytes: int
    decoding: SchemaReading | None = None  # where it names a schema, and there is a registry

    @property
    def is_cut(self) -> bool:
        return self.data is not None and len(self.data) < self.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRecord:
    """A record that a session shows."""

    partition: int
    offset: int
    timestamp_ms: int
    key: Kept
    value: Kept
    headers: tuple[tuple[str, Kept], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A text, the format that it is in, and what is to be said of it."""

    text: str
    format: Format
    remark: str = ""


def keep(
    record: ConsumerRecord, key: SchemaReading | None = None, value: SchemaReading | None = None
) -> KeptRecord:
    return KeptRecord(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=_keep(record.key, key),
        value=_keep(record.value, value),
        headers=tuple((name, _keep(value)) for name, value in record.headers[:_MAX_HEADERS]),
    )


def _keep(data: bytes | None, decoding: SchemaReading | None = None) -> Kept:
    if data is None:
        return Kept(None, 0)
    if decoding is not None:
        text = decoding.text
        decoding = replace(
            decoding,
            text=as_unicode(text if len(text) <= KEPT_BYTES else text[:KEPT_BYTES] + "…"),
            failure=as_unicode(decoding.failure),
        )
    return Kept(bytes(data[:KEPT_BYTES]), len(data), decoding)


def as_unicode(text: str) -> str:
    """JSON can have halves of characters in it, which no browser can be sent: as they are escaped
    there."""
    return text.encode(errors="backslashreplace").decode()


def show(kept: Kept, wanted: Format = Format.AUTO) -> Shown:
    """The whole of what is kept, in the format asked for, or in the nearest that it can be in."""
    if kept.data is None:
        return Shown("null", Format.TEXT, "null")
    remark = f"the first {size_text(len(kept.data))} of {size_text(kept.size_bytes)}"
    remark = remark if kept.is_cut else size_text(kept.size_bytes)
    decoding = kept.decoding
    if decoding is not None and wanted in (Format.AUTO, Format.SCHEMA):
        if decoding.text:
            return Shown(decoding.text, Format.SCHEMA, f"{decoding.schema}, {remark}")
        remark = f"{remark}, {decoding.failure}"
    if wanted is Format.HEX:
        return Shown(hex_dump(kept.data), Format.HEX, remark)
    text = find_text(kept.data, is_cut=kept.is_cut)
    if wanted is Format.TEXT:
        return Shown(kept.data.decode(errors="replace"), Format.TEXT, remark)
    if text is not None and (wanted is Format.JSON or text[:1] in ("{", "[")):
        parsed = _find_json(text)
        if parsed is not None:
            return Shown(parsed, Format.JSON, remark)
    if wanted is Format.JSON:
        return Shown(kept.data.decode(errors="replace"), Format.TEXT, f"{remark}, not JSON")
    return (
        Shown(hex_dump(kept.data), Format.HEX, remark)
        if text is None
        else Shown(text, Format.TEXT, remark)
    )


def preview(kept: Kept) -> str:
    """One line for a table."""
    if kept.data is None:
        return "null"
    if kept.decoding is not None and kept.decoding.text:
        return _one_line(kept.decoding.text)
    head = kept.data[: PREVIEW_CHARACTERS * 4]
    text = find_text(head, is_cut=len(head) < kept.size_bytes)
    if text is None:
        return "0x" + head[: PREVIEW_CHARACTERS // 4].hex() + ("…" if len(head) > 40 else "")
    return _one_line(text)


def _one_line(text: str) -> str:
    text = text[: PREVIEW_CHARACTERS * 4]
    line = " ".join(text.split()) if text.strip() else " " * len(text)
    return line if len(line) <= PREVIEW_CHARACTERS else line[: PREVIEW_CHARACTERS - 1] + "…"


def find_text(data: bytes, *, is_cut: bool) -> str | None:
    """UTF-8 that can be printed; where something was cut off, the last character may be broken."""
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        if not is_cut or fault.start < len(data) - 3:
            return None
        text = data[: fault.start].decode()
    is_printable = all(one.isprintable() or one in "\n\r\t" for one in text)
    return text if is_printable else None


def _find_json(text: str) -> str | None:
    try:
        return as_unicode(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):
        return None


def hex_dump(data: bytes) -> str:
    """Offset, sixteen bytes, and what of them is ASCII; of the first 8 KB."""
    lines = []
    for at in range(0, min(len(data), _HEX_BYTES), _HEX_COLUMNS):
        row = data[at : at + _HEX_COLUMNS]
        ascii_text = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        lines.append(f"{at:06x}  {row.hex(' '):<{_HEX_COLUMNS * 3 - 1}}  {ascii_text}")
    if len(data) > _HEX_BYTES:
        lines.append(f"… {len(data) - _HEX_BYTES:,} bytes more")
    return "\n".join(lines)


def record_id(record: KeptRecord) -> str:
    """Finds a record of a topic again."""
    return f"{record.partition}-{record.offset}"


def record_rows(records: Sequence[KeptRecord]) -> list[dict[str, object]]:
    """As a table takes them."""
    return [
        {
            "id": record_id(one),
            "partition": one.partition,
            "offset": one.offset,
            "time": time_text(one.timestamp_ms),
            "key": preview(one.key),
            "value": preview(one.value),
            "size": size_text(one.key.size_bytes + one.value.size_bytes),
        }
        for one in records
    ]


# Records as a file to take away: JSON lines or CSV.
#
# JSON lines are those of `moldau consume --json`, so that `moldau produce --format json` takes
# them. What a session has cut off of a large value is missing in both, and `…_bytes` says how long
# it was.


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_COLUMNS = ("topic", "partition", "offset", "timestamp_ms", "time", "key", "value", "headers")


def to_json_lines(topic: str, records: Sequence[KeptRecord]) -> bytes:
    lines = []
    for one in records:
        document: dict[str, object] = {
            "topic": topic,
            "partition": one.partition,
            "offset": one.offset,
            "timestamp_ms": one.timestamp_ms,
            **_field("key", one.key),
            **_field("value", one.value),
        }
        if one.headers:
            document["headers"] = [{"key": k, **_field("value", v)} for k, v in one.headers]
        lines.append(json.dumps(document, ensure_ascii=False, separators=(",", ":")))
    return "".join(f"{line}\n" for line in lines).encode()


def to_csv(topic: str, records: Sequence[KeptRecord]) -> bytes:
    """Texts that a spreadsheet would take for a formula begin with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for one in records:
        headers = "; ".join(f"{name}: {_cell(value)}" for name, value in one.headers)
        texts = (_cell(one.key), _cell(one.value), headers)
        writer.writerow(
            (
                topic,
                one.partition,
                one.offset,
                one.timestamp_ms,
                time_text(one.timestamp_ms),
                *map(_harmless, texts),
            )
        )
    return out.getvalue().encode()


def _field(name: str, kept: Kept) -> dict[str, object]:
    found: dict[str, object] = {name: None}
    if kept.data is not None:
        text = find_text(kept.data, is_cut=kept.is_cut)
        found = (
            {f"{name}_base64": base64.b64encode(kept.data).decode()}
            if text is None
            else {name: text}
        )
    return {**found, f"{name}_bytes": kept.size_bytes} if kept.is_cut else found


def _cell(kept: Kept) -> str:
    if kept.data is None:
        return ""
    text = find_text(kept.data, is_cut=kept.is_cut)
    return f"0x{kept.data.hex()}" if text is None else text


def _harmless(text: str) -> str:
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
