"""`make stubs`: writes the stubs of derived classes; `--check` only says which are out of date."""

from __future__ import annotations

import sys

from stubs import HOMES, path_of, render

stale = [
    home
    for home in HOMES
    if not path_of(home).exists() or path_of(home).read_text() != render(home)
]
for home in stale:
    if "--check" in sys.argv[1:]:
        sys.stderr.write(f"{path_of(home)} is out of date: make stubs\n")
    else:
        path_of(home).write_text(render(home))
sys.exit(bool(stale) and "--check" in sys.argv[1:])
