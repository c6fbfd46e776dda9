"""What the census counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from census import compute_figures, read_module

TEXT = '''"""A docstring
of two lines."""

import asyncio
from moldau.model import (
    acls,
)


class Port:
    def send(self, text):
        """A forwarder may have a docstring."""
        return self._wire.send(text)

    async def close(self, *, now):
        await self._wire.close(now=now)

    def change(self, text):
        return self._wire.change(text.upper())

    def load(self):
        import json  # a comment

        return json
'''


def read(name: str = "moldau/net/port.py", text: str = TEXT):
    return read_module(Path(name), text)


def test_lines_have_code() -> None:
    assert read().lines == 14
    assert read().import_lines == 5


def test_imports_inside_functions_are_counted() -> None:
    assert read().inner_imports == 1


def test_a_method_that_changes_an_argument_is_no_forwarder() -> None:
    assert read().forwarders == 2


def test_a_small_module_needs_more_than_one_importer() -> None:
    port = read("example/port.py")
    importer = read("example/link.py", "from example.port import Port\n")
    other = read("example/server.py", "from example import port\n")
    assert compute_figures([port, importer]).small_with_one_importer == 1
    assert compute_figures([port, importer, other]).small_with_one_importer == 0


def test_only_figures_above_their_limit_are_reported() -> None:
    limits = compute_figures([read()])
    found = replace(limits, modules=2, lines=1, median_lines=1)
    assert found.find_above(limits) == {"modules": (2, 1)}
