"""The blocking face of `AsyncAdmin`, derived from it. Typed in the stub beside it."""

from __future__ import annotations

from moldau.client.admin import AsyncAdmin
from moldau.client.blocking_face import BlockingFace


class Admin(BlockingFace, of=AsyncAdmin):
    """Administers one cluster. Safe from any thread; `with` closes it, and so does `close`.

    Options are Kafka's, with underscores for dots: `default_api_timeout_ms=5000`.
    """
