"""`python -m bench.uncounted_broker start ...`: `moldau`, with nothing counted of requests.

For the study `counting`: the statements that count are taken out of the modules on the way of a
request while these are imported; no file is changed. A statement that does not stand in its module
exactly once is an error: the code has moved on, and the table below has to follow.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

Edit = tuple[str, str]
"""What stands in a module, and what stands there instead."""

EDITS: Mapping[str, Sequence[Edit]] = {
    "moldau.broker.dispatch": (
        (
            "            figures = handler.figures\n"
            "            left = figures.left = figures.left - 1\n"
            "            began = self._monotonic() if left <= 0 else NOT_TIMED\n",
            "            figures, began = None, NOT_TIMED\n",
        ),
        (
            "            if left <= 0:\n"
            "                figures.note_timed(self._monotonic() - began)\n",
            "",
        ),
        (
            "        figures.left += 1  # it was not answered at once, and is timed from here on\n"
            "        began = self._monotonic() if began == NOT_TIMED else began\n",
            "",
        ),
        (
            "                self._task = None\n"
            "        figures.note_waited(self._monotonic() - began)\n",
            "                self._task = None\n",
        ),
        (
            "            chunks = await work\n"
            "            figures.note_waited(self._monotonic() - began)\n",
            "            chunks = await work\n",
        ),
        (
            "    _count_errors(values, message_class, context)\n",
            "",
        ),
    ),
    "moldau.broker.handlers.fetch": (
        (
            "        if traffic is not None and records is not None:\n"
            "            _count(traffic, wanted, read, is_consumer=is_consumer)\n",
            "",
        ),
    ),
    "moldau.replication.partition": (
        (
            "        traffic = self.traffic\n"
            "        traffic.bytes_in += len(batch)\n"
            "        traffic.records_in += header.last_offset_delta + 1\n",
            "",
        ),
        ("        self.traffic.replication_bytes_in += len(records)\n", ""),
    ),
}


def edit_source(module: str, source: str) -> str:
    """The module without what it counts."""
    for old, new in EDITS[module]:
        count = source.count(old)
        if count != 1:
            raise RuntimeError(f"{module} has {count} times, not once: {old!r}")
        source = source.replace(old, new)
    return source


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in EDITS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew, past every cache."""
        source = edit_source(fullname, Path(self.path).read_text(encoding="utf-8"))
        return compile(source, self.path, "exec", dont_inherit=True)


if __name__ == "__main__":
    sys.meta_path.insert(0, _Finder())
    sys.argv[0] = "moldau"
    from moldau.cli.entry import main

    main()
