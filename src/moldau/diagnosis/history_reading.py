"""Reads what brokers remember, and what only they know, from their metrics ports. A shell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from moldau.diagnosis.http_get import http_get

Events = list[Mapping[str, object]]


async def read_history(urls: Sequence[str], **wanted: str) -> Events | None:
    """Events of all brokers, oldest first, each once; None where none of them answers.

    Each has `at`, its time for people, and its facts beside the rest.
    """
    answers = await asyncio.gather(*(_read(url, wanted) for url in urls))
    told = [events for events in answers if events is not None]
    if not told:
        return None
    unique = {
        (event.get("at_ms"), event.get("subject"), event.get("message")): event
        for events in told
        for event in events
    }
    by_message: dict[object, Mapping[str, object]] = {}
    for event in sorted(unique.values(), key=_time_of):
        # Several brokers saw the same thing, each by its own clock.
        by_message.setdefault((event.get("subject"), event.get("message")), event)
    return sorted(by_message.values() if len(told) > 1 else unique.values(), key=_time_of)


def _time_of(event: Mapping[str, object]) -> int:
    at_ms = event.get("at_ms")
    return at_ms if isinstance(at_ms, int) else 0


async def read_shares(urls: Sequence[str], group_id: str) -> Events | None:
    """What members of a share group hold, by partition; None where no broker answers."""
    answers = await asyncio.gather(
        *(_read_page(url, "shares", {"group": group_id}) for url in urls)
    )
    told = [rows for rows in answers if rows is not None]
    return [row for rows in told for row in rows] if told else None


async def _read(url: str, wanted: Mapping[str, str]) -> Events | None:
    rows = await _read_page(url, "history", wanted)
    return None if rows is None else [_flat(row) for row in rows]


async def _read_page(url: str, page: str, wanted: Mapping[str, str]) -> Events | None:
    base = url.rstrip("/").removesuffix("/metrics")
    try:
        rows = json.loads(await http_get(f"{base}/{page}?{urlencode(wanted)}"))
    except (OSError, ValueError):
        return None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else None


def _flat(row: Mapping[str, object]) -> Mapping[str, object]:
    facts = row.get("facts")
    at = datetime.fromtimestamp(_time_of(row) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return {**row, **(facts if isinstance(facts, dict) else {}), "at": at}
