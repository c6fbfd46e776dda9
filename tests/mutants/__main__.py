"""`python -m mutants`, with `tests/` on the path: the catalogue, or `generated` ones."""

from __future__ import annotations

import sys

from mutants import generated, runner

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["generated"]:
        sys.exit(generated.main(arguments[1:]))
    sys.exit(runner.main(arguments))
