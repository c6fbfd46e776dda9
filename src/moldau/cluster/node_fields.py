"""Reads the fields of a node's JSON, each with its type, and names the path when one is wrong.

Everyone with a ZooKeeper shell can write to these nodes, so nothing in them is taken on trust. A
rule, except that its errors are about a place: `MalformedNodeError` says which node to look at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeGuard

from moldau.errors import MalformedNodeError


class NodeFields:
    """The JSON object that a node holds."""

    __slots__ = ("_fields", "path")

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        try:
            fields: object = json.loads(data.decode())
        except (ValueError, RecursionError) as error:  # bad UTF-8 is a ValueError too
            raise MalformedNodeError(f"{path}: not JSON ({error}): {data[:200]!r}") from error
        if not isinstance(fields, dict):
            raise MalformedNodeError(f"{path}: not a JSON object: {data[:200]!r}")
        self._fields: Mapping[str, object] = fields

    def fault(self, name: str, wanted: str) -> MalformedNodeError:
        found = self._fields.get(name, "nothing")
        return MalformedNodeError(f"{self.path}: {name!r} should be {wanted}, found {found!r}")

    def integer(self, name: str) -> int:
        value = self._fields.get(name)
        if is_integer(value):
            return value
        raise self.fault(name, "a whole number")

    def integer_text(self, name: str) -> int:
        """A number that Kafka writes as a string, since JavaScript would round it."""
        value = self._fields.get(name)
        try:
            return int(value) if isinstance(value, str) else self.integer(name)
        except ValueError:
            raise self.fault(name, "a whole number in quotes") from None

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if isinstance(value, str):
            return value
        raise self.fault(name, "a string")

    def find_text(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._fields.get(name)
        if not is_integers(value):
            raise self.fault(name, "a list of whole numbers")
        return tuple(value)

    def find_integer(self, name: str, default: int) -> int:
        return default if self._fields.get(name) is None else self.integer(name)

    def find_integers(self, name: str) -> tuple[int, ...]:
        """None of them when it is absent."""
        return () if self._fields.get(name) is None else self.integers(name)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._fields.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fault(name, "a list of strings")
        return tuple(value)

    def text_map(self, name: str) -> dict[str, str]:
        """An object with strings as values; empty when it is absent."""
        value = self._fields.get(name) or {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self.fault(name, "an object with strings as values")
        return value

    def integers_map(self, name: str) -> dict[int, tuple[int, ...]]:
        """An object with lists of numbers under numbers (JSON has them as strings)."""
        value = self._fields.get(name) or {}
        if not isinstance(value, dict) or not all(map(is_integers, value.values())):
            raise self.fault(name, "an object with lists of whole numbers as values")
        try:
            return {int(key): tuple(numbers) for key, numbers in value.items()}
        except ValueError:
            raise self.fault(name, "an object with numbers as names") from None

    def objects(self, name: str) -> list[Mapping[str, object]]:
        value = self._fields.get(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.fault(name, "a list of objects")
        return value


def is_integer(value: object) -> TypeGuard[int]:
    """A number that the protocol has room for."""
    # `type` and not isinstance: JSON's true is an int to Python, and no broker has that id.
    return type(value) is int and -(2**31) <= value < 2**31


def is_integers(value: object) -> TypeGuard[list[int]]:
    return type(value) is list and all(map(is_integer, value))
