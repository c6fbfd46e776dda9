"""Breaks modules while they are imported: their source is edited in memory, no file is changed.

To be used in a process that has not imported them yet. `places` says what an edit is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from mutants.mutant import Edit
from mutants.places import EditError, edited_tree


class Applied(MetaPathFinder):
    """Loads the modules of some edits with these edits, all others as they are."""

    def __init__(self, edits: Sequence[Edit]) -> None:
        self._edits: dict[str, list[Edit]] = {edit.module: [] for edit in edits}
        for edit in edits:
            self._edits[edit.module].append(edit)
        self.loaded: set[str] = set()

    def install(self) -> None:
        early = sorted(self._edits.keys() & sys.modules.keys())
        if early:
            raise EditError(f"imported too early to be broken: {', '.join(early)}")
        sys.meta_path.insert(0, self)

    @property
    def missing(self) -> list[str]:
        """The modules that nobody has imported through here: their edits were not tried."""
        return sorted(self._edits.keys() - self.loaded)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._edits:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise EditError(f"there is no module {fullname}")
        spec.loader = _EditingLoader(fullname, spec.origin, self._edits[fullname])
        self.loaded.add(fullname)
        return spec


class _EditingLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, edits: Sequence[Edit]) -> None:
        super().__init__(fullname, path)
        self._edits = edits

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew, past every cache."""
        tree = edited_tree(Path(self.path).read_text(encoding="utf-8"), self._edits)
        return compile(tree, self.path, "exec", dont_inherit=True)
