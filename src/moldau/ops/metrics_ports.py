"""Finds the metrics ports of brokers and reads them: metrics, history, shares. A shell."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import urlencode

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import Broker, ConfigResource
from moldau.config.declarations.network import split_address
from moldau.config.listeners import ALL_INTERFACES
from moldau.errors import KafkaError, MoldauError

# Where they are is said on the command line, or known from the brokers' own settings
# (`metrics.listener`), as far as they can be reached from here.


_OPTION = "metrics.listener"


class MetricsPorts(NamedTuple):
    """Where brokers serve their metrics, and whether these are brokers that could."""

    urls: Sequence[str]
    is_foreign: bool = False  # all that answered are somebody else's: Apache Kafka's, mostly


class ReadMetrics(NamedTuple):
    """What one broker's port said, and how far its clock is ahead of ours."""

    broker_id: int
    url: str
    values: Mapping[str, float]
    clock_ahead_seconds: float | None


def ports_of(configs: Mapping[int, Mapping[str, str]], brokers: Sequence[Broker]) -> list[str]:
    """Where the brokers serve their metrics, by their settings."""
    urls = []
    for broker in brokers:
        with contextlib.suppress(ValueError):
            host, port = split_address(configs.get(broker.id, {}).get(_OPTION, ""))
            host = broker.address.host if host in ALL_INTERFACES else host
            host = f"[{host}]" if ":" in host else host
            if port:
                urls.append(f"http://{host}:{port}")
    return urls


def foreign_brokers(configs: Mapping[int, Mapping[str, str]]) -> list[int]:
    """Those whose settings know no metrics port: other brokers than Moldau's."""
    return sorted(broker_id for broker_id, told in configs.items() if _OPTION not in told)


async def find_ports(admin: AsyncAdmin) -> MetricsPorts:
    """Asks the brokers."""
    brokers = (await admin.describe_cluster()).brokers
    configs: dict[int, Mapping[str, str]] = {}
    for broker in brokers:
        resource = ConfigResource.broker(broker.id)
        with contextlib.suppress(MoldauError, OSError):
            described = (await admin.describe_configs([resource], names=[_OPTION]))[resource]
            if not isinstance(described, KafkaError):
                configs[broker.id] = {one.name: one.value or "" for one in described}
    is_foreign = bool(configs) and len(foreign_brokers(configs)) == len(configs)
    return MetricsPorts(ports_of(configs, brokers), is_foreign)


async def read_ports(urls: Sequence[str]) -> list[ReadMetrics]:
    """Those that answer."""
    found = await asyncio.gather(*map(_read_port, urls))
    return [one for one in found if one is not None]


async def _read_port(url: str) -> ReadMetrics | None:
    base = url.rstrip("/").removesuffix("/metrics")
    began = time.time()
    try:
        text = await http_get(f"{base}/metrics")
    except OSError:
        return None
    ended = time.time()
    broker_id = -1
    for line in text.splitlines():
        if line.startswith("moldau_build_info{"):
            digits = line.partition('broker_id="')[2].partition('"')[0]
            broker_id = int(digits) if digits.isdecimal() else -1
    values = read_metrics(text)
    clock = values.get("moldau_clock_seconds")
    # It was read at some time in between: what is within the wait is no difference.
    ahead = None
    if clock is not None:
        ahead = 0.0 if began <= clock <= ended else min(clock - began, clock - ended, key=abs)
    return ReadMetrics(broker_id, base, values, ahead)


TIMEOUT_SECONDS: Final = 5.0
_MOST_BYTES: Final = 32 << 20


async def http_get(url: str) -> str:
    """The body. Raises OSError when it cannot be had."""
    if not url.startswith(("http://", "https://")):
        raise OSError(f"{url!r} is not the address of a web page")
    return await asyncio.to_thread(_get, url)


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 checked
            data: bytes = answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        raise OSError(f"{url} answers {error.code}") from error
    return data.decode(errors="replace")


Events = list[Mapping[str, object]]


async def read_history(urls: Sequence[str], **wanted: str) -> Events | None:
    """Events of all brokers, oldest first, each once; None where none of them answers.

    Each has `at`, its time for people, and its facts beside the rest.
    """
    answers = await asyncio.gather(*(_read_rows(url, wanted) for url in urls))
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


async def _read_rows(url: str, wanted: Mapping[str, str]) -> Events | None:
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


_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \S+)?\Z")
_BOUND = re.compile(r'(?:^|,)le="([^"]*)"')


def read_metrics(text: str) -> dict[str, float]:
    """The sums, by name; what is no sample is passed over."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found is None:
            continue
        name, labels, value = found.groups()
        bound = _BOUND.search(labels or "")
        key = name if bound is None else f'{name}{{le="{bound[1]}"}}'
        try:
            sums[key] = sums.get(key, 0.0) + float(value)
        except ValueError:
            continue
    return sums
