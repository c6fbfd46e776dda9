"""Keys and values by the schemas that they name, as the console shows them."""

from __future__ import annotations

import asyncio

import pytest

from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.console.cluster import RecordDecoder
from moldau.console.record_view import Format, KeptRecord, preview, show
from moldau.schemas import Schema, SchemaRegistry
from moldau.schemas.rules.framing import make_head
from moldau.simulation.manual_clock import ManualClock
from support.schema_registry import serve_registry

pytest.importorskip("fastavro")

AVRO = (
    '{"type": "record", "name": "User", "namespace": "shop", '
    '"fields": [{"name": "name", "type": "string"}]}'
)


def record(value: bytes, key: bytes | None = None) -> ConsumerRecord:
    return ConsumerRecord("users", 0, 7, 1_700_000_000_000, key, value)


def keep(decoder: RecordDecoder, *records: ConsumerRecord) -> list[KeptRecord]:
    return asyncio.run(decoder.keep_all(records))


def test_a_value_is_shown_by_its_schema() -> None:
    with serve_registry() as server:
        registry = SchemaRegistry(server.url)
        number = registry.register("users-value", Schema(text=AVRO)).id
        assert number is not None
        written = make_head(number) + registry.codec(number).write({"name": "Bedřich"})
        decoder = RecordDecoder(registry, ManualClock())
        kept, broken, plain = keep(
            decoder, record(written, b"k"), record(make_head(99) + b"x"), record(b"plain")
        )
    shown = show(kept.value)
    assert (shown.format, shown.text) == (Format.SCHEMA, '{\n  "name": "Bedřich"\n}')
    assert shown.remark.startswith(f"Avro: shop.User, schema {number}")
    assert preview(kept.value) == '{ "name": "Bedřich" }'
    assert show(kept.value, Format.HEX).text.startswith("000000  00 00")
    assert show(kept.key).text == "k"
    assert "99" in show(broken.value).remark  # and the bytes are shown
    assert show(broken.value).format is Format.HEX
    assert show(plain.value).text == "plain"
    assert decoder.problem == ""


def test_while_the_registry_is_away_nobody_waits_for_it() -> None:
    clock = ManualClock()
    with serve_registry() as server:
        registry = SchemaRegistry(server.url)
        number = registry.register("users-value", Schema(text=AVRO)).id
        assert number is not None
        written = make_head(number) + registry.codec(number).write({"name": "Bedřich"})
        url, stored = server.url, server.stored
    away = RecordDecoder(SchemaRegistry(url), clock)
    kept = keep(away, record(written), record(written))
    assert show(kept[0].value).format is Format.HEX
    assert away.problem
    asked = len(stored.requests)
    keep(away, *[record(written)] * 50)
    assert len(stored.requests) == asked


def test_without_a_registry_nothing_is_decoded() -> None:
    (kept,) = keep(RecordDecoder(None, ManualClock()), record(make_head(1) + b"x"))
    assert kept.value.decoding is None
