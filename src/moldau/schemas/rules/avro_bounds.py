"""Whether bytes of Avro can be read without harm. A rule.

Two kinds of schema let a few bytes claim anything: one that contains itself (each level takes a
byte, and the decoder, which is not Python, ends the process when its stack does), and an array
whose items take no bytes (nulls by the billion). Bytes of these are walked before they are decoded;
bytes of all others are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaEncodingError
from moldau.schemas.rules.avro_names import AvroType, full_name, named_types, qualify

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
            level = [inner for one in level for inner in _parts(one)]

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


def _parts(value: object) -> Iterable[object]:
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
