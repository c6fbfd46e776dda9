"""From JSON to a value of an Avro schema. A rule.

Taken are documents as `moldau consume --format avro` prints them (a branch of a union stands for
itself, times are ISO 8601, decimals texts), and as Avro's own JSON has them (`{"string": "x"}` for
a branch, numbers for times). Fields that are missing get their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Final
from uuid import UUID

from moldau.errors import SchemaEncodingError
from moldau.schemas.rules.avro_names import AvroType, full_name, named_types, qualify

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
