"""What the metrics ports of brokers say, for the console's charts.

The console does not know of diagnosis, which knows where metrics ports are; this introduces them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from moldau.client.admin import AsyncAdmin
from moldau.console.settings import MetricsPages
from moldau.diagnosis.http_get import http_get
from moldau.diagnosis.metrics_ports import find_ports

_LOOK_AGAIN_SECONDS = 60.0


def metrics_pages(urls: Sequence[str]) -> MetricsPages:
    """Of these ports; without any, of those that the brokers' settings name to whoever asks."""
    found: WeakKeyDictionary[AsyncAdmin, tuple[float, Sequence[str]]] = WeakKeyDictionary()

    async def find(admin: AsyncAdmin) -> Sequence[str]:
        if urls:
            return urls
        asked_at, ports = found.get(admin, (0.0, ()))
        if time.monotonic() - asked_at > _LOOK_AGAIN_SECONDS or asked_at == 0.0:
            ports = (await find_ports(admin)).urls
            found[admin] = (time.monotonic(), ports)
        return ports

    async def read(admin: AsyncAdmin) -> Mapping[str, str]:
        ports = [url.rstrip("/").removesuffix("/metrics") for url in await find(admin)]
        texts = await asyncio.gather(*[_get(url) for url in ports])
        return {url: text for url, text in zip(ports, texts, strict=True) if text is not None}

    return read


async def _get(url: str) -> str | None:
    try:
        return await http_get(f"{url}/metrics")
    except OSError:
        return None
