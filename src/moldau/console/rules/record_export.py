"""Records as a file to take away: JSON lines or CSV. Rules.

JSON lines are those of `moldau consume --json`, so that `moldau produce --format json` takes them.
What a session has cut off of a large value is missing in both, and `…_bytes` says how long it was.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Sequence

from moldau.console.rules.record_view import Kept, KeptRecord, find_text
from moldau.console.rules.wording import time_text

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
