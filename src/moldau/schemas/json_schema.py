"""JSON Schema, by jsonschema. A shell around a library.

References are those that are registered; nothing is ever fetched from where a `$ref` points.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache, wraps
from time import monotonic
from typing import Any, Final

from attrs import fields
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft7Validator, extend, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaEncodingError
from moldau.schemas.model import ResolvedSchema, SchemaType
from moldau.schemas.rules.documents import to_document

_CHECK_SECONDS: Final = 5.0
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class JsonCodec:
    """One JSON Schema, compiled. Implements `codecs.SchemaCodec`.

    What is read is checked against the schema, and so is what is written.
    """

    schema_type: Final[SchemaType] = "JSON"

    def __init__(self, schema: ResolvedSchema) -> None:
        self.schema: Final[Any] = _parse(schema.schema.text)
        kind = validator_for(self.schema, default=Draft7Validator)
        try:
            kind.check_schema(self.schema)
        except SchemaError as error:
            raise ConfigurationError(f"this is no JSON Schema: {error.message}") from error
        resources = [
            (name, Resource.from_contents(_parse(one.schema.text), DRAFT7))
            for name, one in schema.all_referred()
        ]
        registry = Registry().with_resources(resources)
        self._validator = bounded(kind)(self.schema, registry=registry)

    @property
    def name(self) -> str | None:
        title = self.schema.get("title") if isinstance(self.schema, Mapping) else None
        return title if isinstance(title, str) else None

    def read(self, body: bytes, indexes_apart: bytes | None = None) -> object:
        try:
            found: object = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise SchemaDecodingError(f"the bytes are no JSON: {error}") from error
        problem = self._find_problem(found)
        if problem is not None:
            raise SchemaDecodingError(f"the JSON is not {self.name or 'of its schema'}: {problem}")
        return found

    def write(self, value: object) -> bytes:
        problem = self._find_problem(value)
        if problem is not None:
            raise SchemaEncodingError(f"the value is not {self.name or 'of its schema'}: {problem}")
        try:
            return _encode(value).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise SchemaEncodingError(f"the value is no JSON: {error}") from error

    def to_document(self, value: object) -> object:
        return to_document(value)

    def from_document(self, document: object) -> object:
        return document

    def _find_problem(self, value: object) -> str | None:
        try:
            with checked_within(_CHECK_SECONDS):
                self._validator.validate(value)
        except OverTimeError:
            return f"it takes longer than {_CHECK_SECONDS:g} seconds to check"
        except ValidationError as error:
            where = error.json_path
            return error.message if where == "$" else f"at {where[2:]}: {error.message}"
        except Unresolvable as error:
            raise ConfigurationError(
                f"the schema refers to {error.ref!r}, which is not among its registered references"
            ) from error
        except RecursionError:
            return "it is nested too deeply"
        except (ArithmeticError, ValueError, TypeError, AttributeError) as error:
            return f"it cannot be checked: {error}"  # numbers beyond all measure, for one
        return None


def _parse(text: str) -> Any:  # Any: it is a schema of another language, walked by its library
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"a JSON Schema is JSON, and this is none: {error}") from None


# Keywords of JSON Schema with a bound on their time: whoever writes a record must not hold up who
# reads it. Around jsonschema's own.
#
# Patterns are matched by RE2, whose time grows with the text and no faster; `(a+)+$` takes Python's
# module for ever. What RE2 does not know (looking ahead or behind, references to groups) is left to
# Python's, and so are the patterns of properties where `unevaluatedProperties` asks for them. Items
# are compared by hash. All else, such as alternatives within alternatives, ends when its time is
# up.


Check = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]
"""Of a validator, a keyword's value, what is checked, and the schema around the keyword."""

_KEPT_PATTERNS: Final = 1000
_limit = threading.local()


class OverTimeError(Exception):
    """A check has taken longer than it may."""


@contextmanager
def checked_within(seconds: float) -> Iterator[None]:
    """Bounds what validators of `bounded` do in this thread; raises OverTimeError."""
    _limit.end = monotonic() + seconds
    try:
        yield
    finally:
        del _limit.end


@cache
def bounded(kind: Any) -> Any:
    """A class of validators like this one, whose checks end in time."""
    checks: dict[str, Check] = kind.VALIDATORS
    own = {name: _OWN.get(name, check) for name, check in checks.items()}
    made: Any = extend(kind, {name: _in_time(check) for name, check in own.items()})
    inits = [(field.name, field.alias) for field in fields(made) if field.init]

    def evolve(self: Any, **changes: Any) -> Any:
        """As jsonschema does it; its own would leave the bounds behind at the next `$schema`."""
        for name, alias in inits:
            if alias not in changes:
                changes[alias] = getattr(self, name)
        found = validator_for(changes["schema"], default=None)
        return (made if found is None else bounded(found))(**changes)

    made.evolve = evolve
    return made


def _in_time(check: Check) -> Check:
    @wraps(check)
    def checked(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterable[ValidationError] | None:
        if monotonic() > _limit.end:
            raise OverTimeError
        return check(validator, value, instance, schema)

    return checked


@lru_cache(_KEPT_PATTERNS)
def _compile(pattern: str) -> Any:
    try:
        import re2  # of moldau[schemas]; where somebody has left it out, patterns have no bound
    except ImportError:
        return _compile_unbounded(pattern)
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError):
        return _compile_unbounded(pattern)


def _is_found(pattern: str, text: str) -> bool:
    """Half of a surrogate pair, which JSON can say and UTF-8 cannot, is taken for U+FFFD."""
    compiled = _compile(pattern)
    try:
        return compiled.search(text) is not None
    except UnicodeEncodeError:
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return compiled.search(whole) is not None


def _compile_unbounded(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(
            f"the schema has a pattern that is no regular expression, {pattern!r:.200}: {error}"
        ) from error


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _is_found(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        for name, value in instance.items():
            if _is_found(pattern, name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = [
        name
        for name in instance
        if name not in known and not any(_is_found(one, name) for one in patterns)
    ]
    if validator.is_type(allowed, "object"):
        for name in extras:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extras:
        shown = ", ".join(map(repr, sorted(extras, key=str)))
        yield ValidationError(f"it has properties that the schema does not allow: {shown}")


def _unique_items(
    validator: Any, wanted: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not wanted or not validator.is_type(instance, "array"):
        return
    if len({_hashable(one) for one in instance}) < len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _hashable(value: Any) -> object:
    """Equal for what JSON Schema calls equal: 1 and 1.0 are, 1 and true are not."""
    match value:
        case bool():
            return (bool, value)
        case list():
            return (list, *map(_hashable, value))
        case dict():
            return (dict, frozenset((name, _hashable(one)) for name, one in value.items()))
        case _:
            return value


_OWN: Final[Mapping[str, Check]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}
