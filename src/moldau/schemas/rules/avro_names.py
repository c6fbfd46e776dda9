"""One Avro schema that stands for itself, out of one that refers to others. A rule.

Each named type is defined where it is used first, and named everywhere else, as Avro wants it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from moldau.errors import ConfigurationError
from moldau.schemas.model import ResolvedSchema

AvroType: TypeAlias = object
"""A schema or a part of one, as JSON has it."""

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_COMPLEX: Final = _NAMED | {"array", "map"}


class _Definition(NamedTuple):
    node: Mapping[str, object]
    namespace: str  # of what is around it


def resolve_avro(schema: ResolvedSchema) -> AvroType:
    """The schema with all it refers to inside; raises ConfigurationError for what is no JSON."""
    definitions: dict[str, _Definition] = {}
    for _, one in schema.all_referred():
        _collect(parse_avro(one.schema.text), "", definitions)
    return _Inlining(definitions).walk(parse_avro(schema.schema.text), "")


def parse_avro(text: str) -> AvroType:
    try:
        found: object = json.loads(text)
    except ValueError as error:
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise ConfigurationError(f"an Avro schema is JSON, and this is none: {error}") from None
    return found


def named_types(node: AvroType) -> dict[str, Mapping[str, object]]:
    """The definitions in a schema, by their full names."""
    found: dict[str, _Definition] = {}
    _collect(node, "", found)
    return {name: one.node for name, one in found.items()}


def full_name(node: Mapping[str, object], namespace: str) -> str:
    name, own = str(node.get("name")), node.get("namespace")
    if "." in name:
        return name
    around = own if isinstance(own, str) else namespace
    return f"{around}.{name}" if around else name


def qualify(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _collect(node: AvroType, namespace: str, found: dict[str, _Definition]) -> None:
    if isinstance(node, list):
        for one in node:
            _collect(one, namespace, found)
    elif isinstance(node, dict):
        if _is_named(node.get("type")):
            name = full_name(node, namespace)
            found.setdefault(name, _Definition(node, namespace))
            namespace = name.rpartition(".")[0]
        for one in _parts(node):
            _collect(one, namespace, found)


def _is_named(kind: object) -> bool:
    return isinstance(kind, str) and kind in _NAMED


def _parts(node: Mapping[str, object]) -> Iterable[AvroType]:
    fields = node.get("fields")
    if isinstance(fields, list):
        yield from (one.get("type") for one in fields if isinstance(one, dict))
    yield from (node[name] for name in ("items", "values") if name in node)
    if isinstance(node.get("type"), dict | list):
        yield node["type"]


class _Inlining:
    """One walk through a schema; remembers what is defined by then."""

    def __init__(self, definitions: Mapping[str, _Definition]) -> None:
        self._definitions = definitions
        self._defined: set[str] = set()

    def walk(self, node: AvroType, namespace: str) -> AvroType:
        if isinstance(node, str):
            return self._walk_name(node, namespace)
        if isinstance(node, list):
            return [self.walk(one, namespace) for one in node]
        if not isinstance(node, dict):
            raise ConfigurationError(f"{json.dumps(node)} is no type of Avro")
        return self._walk_object(node, namespace)

    def _walk_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return name
        found = qualify(name, namespace)
        if found in self._defined or found not in self._definitions:
            return found if found in self._defined else name
        return self._walk_object(self._definitions[found].node, self._definitions[found].namespace)

    def _walk_object(self, node: Mapping[str, object], namespace: str) -> AvroType:
        # By names like these fastavro knows what it has parsed, which it would not look at again.
        made = {name: one for name, one in node.items() if not name.startswith("__")}
        kind = node.get("type")
        if isinstance(kind, dict | list):
            return self.walk(kind, namespace)  # a type within a type, which says no more
        if isinstance(kind, str) and qualify(kind, namespace) in self._definitions:
            return self._walk_name(kind, namespace)
        if _is_named(kind):
            name = full_name(node, namespace)
            if name in self._defined:
                return name
            self._defined.add(name)
            namespace, _, made["name"] = name.rpartition(".")
            made["namespace"] = namespace
        fields = node.get("fields")
        if isinstance(fields, list):
            made["fields"] = [
                {**one, "type": self.walk(one.get("type"), namespace)}
                if isinstance(one, dict)
                else one
                for one in fields
            ]
        for name in ("items", "values"):
            if name in node:
                made[name] = self.walk(node[name], namespace)
        if kind not in _COMPLEX:
            made["type"] = self.walk(kind, namespace)
        return made
