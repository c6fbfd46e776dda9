"""Finds the metrics ports of brokers and reads them. A shell.

Where they are is said on the command line, or known from the brokers' own settings
(`metrics.listener`), as far as they can be reached from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import Broker, ConfigResource
from moldau.config.declarations.metrics import split_address
from moldau.config.listeners import ALL_INTERFACES
from moldau.diagnosis.http_get import http_get
from moldau.diagnosis.rules.metrics_text import read_metrics
from moldau.errors import KafkaError, MoldauError

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
