"""Writes `docs/compatibility.md`; `--check` only says whether it is out of date."""

from __future__ import annotations

import sys

from compatibility import PAGE, render

text = render()
is_stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
if is_stale and "--check" in sys.argv[1:]:
    sys.exit(f"{PAGE.name} is out of date: make reference")
PAGE.write_text(text, encoding="utf-8")
