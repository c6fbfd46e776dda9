"""Avro, JSON Schema and Protobuf by a schema registry: what `moldau[schemas]` adds.

    registry = moldau.schemas.SchemaRegistry("http://127.0.0.1:8081")
    moldau.schemas.decode_any(registry, record.value)

Names are loaded when they are asked for, and the libraries of a format with its first schema.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, without the import
if TYPE_CHECKING:
    from moldau.schemas.model import Compatibility, Reference, RegisteredSchema, Schema
    from moldau.schemas.registry import SchemaRegistry
    from moldau.schemas.serializing import SchemaDeserializer, SchemaSerializer
    from moldau.schemas.showing import Decoded, decode_any
else:
    from moldau.lazy_names import load_on_demand

    __getattr__, __dir__ = load_on_demand(
        __name__,
        {
            "model": "Compatibility Reference RegisteredSchema Schema",
            "registry": "SchemaRegistry",
            "serializing": "SchemaDeserializer SchemaSerializer",
            "showing": "Decoded decode_any",
        },
    )

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
