"""Avro: names of schemas, values as JSON has them, and bounds of what is read. Rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaEncodingError
from moldau.schemas.model import ResolvedSchema

# One Avro schema that stands for itself, out of one that refers to others. A rule.
#
# Each named type is defined where it is used first, and named everywhere else, as Avro wants it.


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
        for one in _children(node):
            _collect(one, namespace, found)


def _is_named(kind: object) -> bool:
    return isinstance(kind, str) and kind in _NAMED


def _children(node: Mapping[str, object]) -> Iterable[AvroType]:
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


# From JSON to a value of an Avro schema. A rule.
#
# Taken are documents as `moldau consume --format avro` prints them (a branch of a union stands for
# itself, times are ISO 8601, decimals texts), and as Avro's own JSON has them (`{"string": "x"}`
# for a branch, numbers for times). Fields that are missing get their defaults.

_INT: Final = range(-(1 << 31), 1 << 31)
_LONG: Final = range(-(1 << 63), 1 << 63)
_FLOATS: Final = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}


class _MisfitError(ValueError):
    """A document does not fit; `where` is the way to the part that does not."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(problem)
        self.where = where


class AvroDocuments:
    """Reads documents by one schema, in which every name is defined."""

    def __init__(self, schema: AvroType) -> None:
        self._schema = schema
        self._names = named_types(schema)
        self._complex = {
            "record": self._read_record,
            "error": self._read_record,
            "array": self._read_array,
            "map": self._read_map,
            "enum": self._read_enum,
        }

    def read(self, document: object) -> object:
        """Raises SchemaEncodingError, which says where it does not fit."""
        try:
            return self._read(document, self._schema, "", "")
        except _MisfitError as error:
            where = f"at {error.where}: " if error.where else ""
            raise SchemaEncodingError(f"{where}{error}") from None
        except RecursionError:
            raise SchemaEncodingError("the value is nested too deeply") from None

    def _read(self, found: object, node: AvroType, namespace: str, where: str) -> object:
        if isinstance(node, list):
            return self._read_branch(found, node, namespace, where)
        if isinstance(node, str):
            named = self._names.get(qualify(node, namespace)) or self._names.get(node)
            if named is None and node not in _PLAIN:
                raise _MisfitError(where, f"{node!r} is no type of Avro")
            return self._read(found, named or {"type": node}, namespace, where)
        if not isinstance(node, Mapping):
            raise _MisfitError(where, f"{node!r} is no type of Avro")
        kind = node.get("type")
        if isinstance(kind, str) and (kind in _PLAIN or kind == "fixed"):
            return _read_plain(found, node, kind, where)
        read = self._complex.get(kind) if isinstance(kind, str) else None
        if read is not None:
            return read(found, node, namespace, where)
        return self._read(found, kind, namespace, where)  # a type within a type, or a name

    def _read_array(
        self, found: object, node: Mapping[str, object], namespace: str, where: str
    ) -> object:
        if not isinstance(found, list):
            raise _wrong(where, found, "an array")
        return [
            self._read(one, node.get("items"), namespace, f"{where}[{index}]")
            for index, one in enumerate(found)
        ]

    def _read_map(
        self, found: object, node: Mapping[str, object], namespace: str, where: str
    ) -> object:
        if not isinstance(found, dict):
            raise _wrong(where, found, "a map")
        return {
            name: self._read(one, node.get("values"), namespace, f"{where}[{name!r}]")
            for name, one in found.items()
        }

    def _read_enum(
        self, found: object, node: Mapping[str, object], namespace: str, where: str
    ) -> object:
        symbols = node.get("symbols")
        known = symbols if isinstance(symbols, list) else []
        if found not in known:
            raise _wrong(where, found, f"one of {', '.join(map(str, known))}")
        return found

    def _read_record(
        self, found: object, node: Mapping[str, object], namespace: str, where: str
    ) -> object:
        if not isinstance(found, dict):
            raise _wrong(where, found, f"a record {node.get('name')}")
        inner = full_name(node, namespace).rpartition(".")[0]
        fields = node.get("fields")
        made: dict[str, object] = {}
        known: set[str] = set()
        for field in fields if isinstance(fields, list) else ():
            name = field["name"]
            known.add(name)
            at = f"{where}.{name}" if where else name
            if name in found:
                made[name] = self._read(found[name], field["type"], inner, at)
            elif "default" not in field and not _takes_null(field["type"]):
                raise _MisfitError(at, "is missing, and has no default")
        unknown = found.keys() - known
        if unknown:
            raise _MisfitError(
                where, f"the record {node.get('name')} has no field {min(unknown)!r}"
            )
        return made

    def _read_branch(
        self, found: object, branches: list[AvroType], namespace: str, where: str
    ) -> object:
        if isinstance(found, dict) and len(found) == 1:
            (tag, inner), *_ = found.items()
            for branch in branches:
                if tag in self._tags(branch, namespace):
                    # A record or map may look the same: then it is tried as that below.
                    try:
                        return self._read(inner, branch, namespace, where)
                    except _MisfitError:
                        break
        deepest: _MisfitError | None = None
        for branch in branches:
            try:
                return self._read(found, branch, namespace, where)
            except _MisfitError as error:
                if deepest is None or len(error.where) > len(deepest.where):
                    deepest = error
        if deepest is not None and len(deepest.where) > len(where):
            raise deepest
        kinds = ", ".join(sorted({min(self._tags(one, namespace), default="") for one in branches}))
        raise _wrong(where, found, f"any of {kinds}")

    def _tags(self, branch: AvroType, namespace: str) -> set[str]:
        if isinstance(branch, str):
            return {branch, qualify(branch, namespace)}
        if isinstance(branch, Mapping):
            if "name" in branch:
                return {str(branch["name"]), full_name(branch, namespace)}
            return {str(branch.get("type"))}
        return set()


def _takes_null(node: AvroType) -> bool:
    return node == "null" or (isinstance(node, list) and "null" in node)


def _wrong(where: str, found: object, wanted: str) -> _MisfitError:
    shown = repr(found)
    return _MisfitError(where, f"{shown if len(shown) <= 60 else shown[:60] + '…'} is not {wanted}")


def _read_plain(found: object, node: Mapping[str, object], kind: str, where: str) -> object:
    logical = node.get("logicalType")
    if isinstance(logical, str) and logical in _LOGICAL and isinstance(found, str | float | int):
        is_raw = isinstance(found, int) and not isinstance(found, bool) and logical != "decimal"
        if not is_raw and not isinstance(found, bool):
            try:
                return _LOGICAL[logical](str(found))
            except (ValueError, InvalidOperation):
                raise _wrong(where, found, f"a {logical}") from None
    if kind == "fixed":
        if not isinstance(found, str) or len(found) != node.get("size"):
            raise _wrong(where, found, f"a text of {node.get('size')} characters, each a byte")
        return _read_bytes(found, where)
    return _PLAIN[kind](found, where)


def _read_null(found: object, where: str) -> None:
    if found is not None:
        raise _wrong(where, found, "null")


def _read_boolean(found: object, where: str) -> bool:
    if not isinstance(found, bool):
        raise _wrong(where, found, "a boolean")
    return found


def _whole(limits: range, name: str) -> Callable[[object, str], int]:
    def read(found: object, where: str) -> int:
        if not isinstance(found, int) or isinstance(found, bool) or found not in limits:
            raise _wrong(where, found, f"an {name}" if name == "int" else f"a {name}")
        return found

    return read


def _read_float(found: object, where: str) -> float:
    if isinstance(found, str) and found in _FLOATS:
        return float(_FLOATS[found])
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise _wrong(where, found, "a number")
    return float(found)


def _read_text(found: object, where: str) -> str:
    if not isinstance(found, str):
        raise _wrong(where, found, "a string")
    return found


def _read_bytes(found: object, where: str) -> bytes:
    if isinstance(found, str):
        try:
            return found.encode("latin-1")
        except UnicodeEncodeError:
            pass
    raise _wrong(where, found, "a text of characters up to ÿ, each a byte")


_PLAIN: Final[Mapping[str, Callable[[object, str], object]]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _whole(_INT, "int"),
    "long": _whole(_LONG, "long"),
    "float": _read_float,
    "double": _read_float,
    "string": _read_text,
    "bytes": _read_bytes,
}

_LOGICAL: Final[Mapping[str, Callable[[str], object]]] = {
    "decimal": Decimal,
    "date": date.fromisoformat,
    "time-millis": time.fromisoformat,
    "time-micros": time.fromisoformat,
    "timestamp-millis": datetime.fromisoformat,
    "timestamp-micros": datetime.fromisoformat,
    "timestamp-nanos": datetime.fromisoformat,
    "local-timestamp-millis": datetime.fromisoformat,
    "local-timestamp-micros": datetime.fromisoformat,
    "local-timestamp-nanos": datetime.fromisoformat,
    "uuid": UUID,
}


# Whether bytes of Avro can be read without harm. A rule.
#
# Two kinds of schema let a few bytes claim anything: one that contains itself (each level takes a
# byte, and the decoder, which is not Python, ends the process when its stack does), and an array
# whose items take no bytes (nulls by the billion). Bytes of these are walked before they are
# decoded; bytes of all others are not looked at.

DEEPEST: Final = 200
"""Records within records; Protobuf has 100."""
MOST_WEIGHTLESS_ITEMS: Final = 100_000
_MOST_VARINT_BYTES: Final = 10
_CONTAINERS: Final = 3
"""That a value has for a record within a record: a map or an array, and the name of a branch."""
_WIDTHS: Final[Mapping[str, int]] = {"null": 0, "boolean": 1, "float": 4, "double": 8}

_Skip: TypeAlias = Callable[["_Walk", int, int], int]
"""Where a value ends, that begins at the first number, within so many records."""


class AvroBounds:
    """Of one schema, in which every name is defined."""

    def __init__(self, schema: AvroType) -> None:
        """Raises ConfigurationError for a schema of which there is no value: it has no end."""
        self._names = named_types(schema)
        self._records: dict[str, _Skip] = {}
        self._begun: set[str] = set()
        self._is_recursive = False
        self._has_weightless_items = False
        self._skip = self._compile(schema, "", ())

    def check(self, body: bytes) -> None:
        """Raises SchemaDecodingError for what would do harm, and for some that is damaged."""
        # Each level of a record within itself takes a byte at least.
        if self._has_weightless_items or (self._is_recursive and len(body) > DEEPEST):
            try:
                self._skip(_Walk(body), 0, 0)
            except RecursionError:
                raise _too_deep() from None

    def check_value(self, value: object) -> None:
        """Raises SchemaEncodingError for what the encoder's stack would end at; nobody could read
        it either."""
        level, depth = [value] if self._is_recursive else [], 0
        while level:
            depth += 1
            if depth > _CONTAINERS * DEEPEST:
                raise SchemaEncodingError(str(_too_deep()))
            level = [inner for one in level for inner in _inner_types(one)]

    def _compile(self, node: AvroType, namespace: str, above: tuple[str, ...]) -> _Skip:
        """`above` are the records of which there is one around each value of this."""
        if isinstance(node, list):
            return _union([self._compile(one, namespace, ()) for one in node])
        if isinstance(node, str):
            named = self._names.get(qualify(node, namespace)) or self._names.get(node)
            return _plain(node) if named is None else self._compile(named, namespace, above)
        if not isinstance(node, Mapping):
            raise ConfigurationError(f"{node!r} is no type of Avro")
        match node.get("type"):
            case "record" | "error":
                return self._compile_record(node, namespace, above)
            case "array":
                return self._compile_array(node.get("items"), namespace)
            case "map":
                value = self._compile(node.get("values"), namespace, ())
                return _blocks(lambda walk, at, depth: value(walk, _skip_text(walk, at, 0), depth))
            case "fixed":
                size = node.get("size")
                return _fixed(size if isinstance(size, int) else 0)
            case "enum":
                return _skip_number
            case kind:  # a type within a type, or a name
                return self._compile(kind, namespace, above)

    def _compile_record(
        self, node: Mapping[str, object], namespace: str, above: tuple[str, ...]
    ) -> _Skip:
        name = full_name(node, namespace)
        if name in above:
            raise ConfigurationError(f"the record {name} contains itself without an end")
        if name in self._begun:
            self._is_recursive = True
            return lambda walk, at, depth: self._records[name](walk, at, depth)
        if name not in self._records:
            self._begun.add(name)
            self._records[name] = _skip_number  # takes a byte, as a record that holds itself does
            inner, declared = name.rpartition(".")[0], node.get("fields")
            fields = [
                self._compile(one.get("type"), inner, (*above, name))
                for one in (declared if isinstance(declared, list) else ())
                if isinstance(one, Mapping)
            ]
            self._records[name] = _record(fields)
            self._begun.discard(name)
        return self._records[name]

    def _compile_array(self, items: AvroType, namespace: str) -> _Skip:
        item = self._compile(items, namespace, ())
        try:
            item(_Walk(b""), 0, 0)
        except SchemaDecodingError:
            return _blocks(item)
        self._has_weightless_items = True
        return _skip_weightless


def _inner_types(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


class _Walk:
    """One walk through the bytes of a value."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._weightless_items = 0

    def advance(self, at: int, count: int) -> int:
        if not 0 <= count <= len(self._body) - at:
            raise SchemaDecodingError("the bytes are not what the Avro schema says: they are cut")
        return at + count

    def read_number(self, at: int) -> tuple[int, int]:
        """A zigzag varint, and where it ends."""
        value = 0
        for index, byte in enumerate(self._body[at : at + _MOST_VARINT_BYTES]):
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), at + index + 1
        raise SchemaDecodingError(
            "the bytes are not what the Avro schema says: a number has no end"
        )

    def count_weightless(self, count: int) -> None:
        self._weightless_items += count
        if self._weightless_items > MOST_WEIGHTLESS_ITEMS:
            raise SchemaDecodingError(
                f"more than {MOST_WEIGHTLESS_ITEMS:,} items are claimed that take no bytes: "
                "the bytes are damaged, or meant to do harm"
            )


def _plain(name: str) -> _Skip:
    if name in _WIDTHS:
        return _fixed(_WIDTHS[name])
    if name in ("int", "long"):
        return _skip_number
    if name in ("string", "bytes"):
        return _skip_text
    raise ConfigurationError(f"{name!r} is no type of Avro")


def _fixed(size: int) -> _Skip:
    return lambda walk, at, _: walk.advance(at, size)


def _skip_number(walk: _Walk, at: int, _: int) -> int:
    return walk.read_number(at)[1]


def _skip_text(walk: _Walk, at: int, _: int) -> int:
    size, at = walk.read_number(at)
    return walk.advance(at, size)


def _record(fields: Sequence[_Skip]) -> _Skip:
    def skip(walk: _Walk, at: int, depth: int) -> int:
        if depth >= DEEPEST:
            raise _too_deep()
        for field in fields:
            at = field(walk, at, depth + 1)
        return at

    return skip


def _union(branches: Sequence[_Skip]) -> _Skip:
    def skip(walk: _Walk, at: int, depth: int) -> int:
        index, at = walk.read_number(at)
        if not 0 <= index < len(branches):
            raise SchemaDecodingError(
                "the bytes are not what the Avro schema says: a union has no such branch"
            )
        return branches[index](walk, at, depth)

    return skip


def _blocks(item: _Skip) -> _Skip:
    def skip(walk: _Walk, at: int, depth: int) -> int:
        while True:
            count, at = _read_count(walk, at)
            if count == 0:
                return at
            for _ in range(count):  # each takes a byte at least
                at = item(walk, at, depth)

    return skip


def _skip_weightless(walk: _Walk, at: int, _: int) -> int:
    while True:
        count, at = _read_count(walk, at)
        if count == 0:
            return at
        walk.count_weightless(count)


def _read_count(walk: _Walk, at: int) -> tuple[int, int]:
    """Of the items of a block; a negative one is followed by how many bytes they take."""
    count, at = walk.read_number(at)
    return (count, at) if count >= 0 else (-count, walk.read_number(at)[1])


def _too_deep() -> SchemaDecodingError:
    return SchemaDecodingError(f"records are nested more than {DEEPEST} deep")
