"""`make check`, `make test`, `make proof`: runs the steps of a level and prints their results.

    python -m levels check|test|proof [STEP...]

With the beginnings of the names of steps, only these are run, and the record of the last green run
stays as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from levels import LEVELS, run_level


def main(arguments: Sequence[str]) -> int:
    level, *names = arguments or [""]
    if level not in LEVELS:
        say(f"usage: python -m levels {'|'.join(LEVELS)} [STEP...]\n")
        return 2
    steps = [step for step in LEVELS[level] if not names or step.name.startswith(tuple(names))]
    record = run_level(level, steps, say, keep=not names)
    say("\n" + "\n".join(record.describe()) + "\n")
    return 0 if record.is_green else 1


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
