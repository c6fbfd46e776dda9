"""Keys and values by the schemas that they name, for people. A shell.

A schema is looked up once, in a thread. While a registry does not answer, nobody waits for it:
records are shown as they are, and it is asked again after a while.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.clock import Clock
from moldau.console.rules.record_view import KeptRecord, SchemaReading, keep
from moldau.errors import MoldauError, RegistryUnreachableError

if TYPE_CHECKING:
    from moldau.schemas.model import Field
    from moldau.schemas.registry import SchemaRegistry

_REST_SECONDS = 15.0
_MAGIC = 0
"""The first byte of what names its schema; GUIDs stand in headers instead."""


class RecordDecoder:
    """`problem` says why values are shown as bytes, while the registry is away."""

    def __init__(self, registry: SchemaRegistry | None, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._resting_until = 0.0
        self.problem = ""

    async def keep_all(self, records: Sequence[ConsumerRecord]) -> list[KeptRecord]:
        """As far as a session keeps them, decoded where they can be."""
        if self._registry is None or not records:
            return [keep(one) for one in records]
        return await asyncio.to_thread(self._decode_all, self._registry, records)

    def _decode_all(
        self, registry: SchemaRegistry, records: Sequence[ConsumerRecord]
    ) -> list[KeptRecord]:
        return [
            keep(
                one,
                key=self._decode(registry, one, one.key, "key"),
                value=self._decode(registry, one, one.value, "value"),
            )
            for one in records
        ]

    def _decode(
        self, registry: SchemaRegistry, record: ConsumerRecord, data: bytes | None, field: Field
    ) -> SchemaReading | None:
        from moldau.schemas.showing import decode_any

        if data is None or not (data[:1] == bytes((_MAGIC,)) or record.headers):
            return None
        if self._clock.monotonic() < self._resting_until:
            return None
        try:
            found = decode_any(registry, bytes(data), record.headers, field)
            text = json.dumps(found.value, indent=2, ensure_ascii=False)
        except RegistryUnreachableError as error:
            self._resting_until = self._clock.monotonic() + _REST_SECONDS
            self.problem = str(error)
            return None
        except (MoldauError, ValueError, TypeError, RecursionError) as error:
            return SchemaReading(failure=str(error)) if data[:1] == bytes((_MAGIC,)) else None
        self.problem = ""
        schema = f"schema {found.id}" if found.id is not None else f"schema {found.guid}"
        kind = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}.get(
            str(found.type), str(found.type)
        )
        name = f"{found.name}, " if found.name else ""
        return SchemaReading(text=text, schema=f"{kind}: {name}{schema}")
