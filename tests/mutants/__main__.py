"""`python -m mutants`, with `tests/` on the path."""

from __future__ import annotations

import sys

from mutants.runner import main

if __name__ == "__main__":
    sys.exit(main())
