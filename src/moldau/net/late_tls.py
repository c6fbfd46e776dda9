"""asyncio without OpenSSL, until somebody needs TLS.

asyncio imports `ssl`, and with it OpenSSL: five megabytes of an idle broker and a twentieth of its
start, though most brokers never use them. So `moldau start` lets asyncio find no `ssl`, which it is
made for (a Python may be built without), and who connects with TLS hands it over first. Listeners
with TLS do without asyncio's (`tls_connection`).
"""

from __future__ import annotations

import importlib
import sys


def import_asyncio_without_tls() -> None:
    """Call before anything imports asyncio; else, or where `ssl` is loaded, nothing happens."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # an import fails, as if there were none
    try:
        importlib.import_module("asyncio")
    finally:
        del sys.modules["ssl"]


def give_tls_to_asyncio() -> None:
    """asyncio's connections may be encrypted from now on. The first time takes milliseconds."""
    import ssl
    from asyncio import base_events, selector_events, sslproto

    if getattr(sslproto, "ssl", None) is None:
        importlib.reload(sslproto)
        for module in (base_events, selector_events):
            module.ssl = ssl  # type: ignore[attr-defined]
