"""Avro, JSON Schema and Protobuf by a schema registry: what `moldau[schemas]` adds.

    registry = moldau.schemas.SchemaRegistry("http://127.0.0.1:8081")
    moldau.schemas.decode_any(registry, record.value)

Names are loaded when they are asked for, and the libraries of a format with its first schema.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.schemas.model import Compatibility, Reference, RegisteredSchema, Schema
    from moldau.schemas.registry import SchemaRegistry
    from moldau.schemas.serializing import SchemaDeserializer, SchemaSerializer
    from moldau.schemas.showing import Decoded, decode_any
else:
    _HOMES = {
        "Compatibility": "moldau.schemas.model",
        "Decoded": "moldau.schemas.showing",
        "Reference": "moldau.schemas.model",
        "RegisteredSchema": "moldau.schemas.model",
        "Schema": "moldau.schemas.model",
        "SchemaDeserializer": "moldau.schemas.serializing",
        "SchemaRegistry": "moldau.schemas.registry",
        "SchemaSerializer": "moldau.schemas.serializing",
        "decode_any": "moldau.schemas.showing",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__():
        special = (name for name in globals() if name.startswith("__"))
        return sorted({*special, *_HOMES})


__all__ = (
    "Compatibility",
    "Decoded",
    "Reference",
    "RegisteredSchema",
    "Schema",
    "SchemaDeserializer",
    "SchemaRegistry",
    "SchemaSerializer",
    "decode_any",
)
