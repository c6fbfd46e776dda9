"""What is wrong with an Avro schema, as far as it shows without decoding anything. A rule.

Types of fields are looked at by whoever decodes; here it is the outline that has to be right.
"""

from __future__ import annotations

import json

_EXAMPLE = '{"type": "record", "name": "Click", "fields": [{"name": "user", "type": "string"}]}'


def find_schema_fault(text: str) -> str | None:
    """A sentence about the first fault, or None."""
    try:
        schema: object = json.loads(text)
    except ValueError as fault:
        return f"an Avro schema is JSON, and this is none: {fault}; write it like {_EXAMPLE}"
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return f"is not the schema of a record; write it like {_EXAMPLE}"
    if not isinstance(schema.get("name"), str):
        return 'the record has no name; add "name"'
    fields = schema.get("fields")
    if not isinstance(fields, list) or not fields:
        return f'the record has no fields; add "fields", as in {_EXAMPLE}'
    return next((told for one in fields if (told := _find_field_fault(one))), None)


def _find_field_fault(field: object) -> str | None:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str):
        return f'the field {json.dumps(field)} has no name; add "name"'
    if "type" not in field:
        return f'the field {field["name"]!r} has no type; add one, such as "type": "string"'
    return None
