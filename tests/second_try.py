"""`python tests/second_try.py [PYTEST'S ARGUMENTS]`: all tests, some of them twice if need be.

Tests of real processes, real clients and Spark run in real time beside each other: on a machine
that somebody else keeps busy, a limit of theirs or of another project's (Spark gives a Python
process ten seconds to come up) is passed now and then. Such tests, if they are few, are run once
more, one after the other, and those that passed only then are named, since each is a fault of a
test or of the product that somebody has to find. Everything that is computed, the simulation
before all, fails at once: it answers the same each time.

`make test` has no second try; `.ci/run` has.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_PROJECT = Path(__file__).resolve().parent.parent
_LAST_FAILED = _PROJECT / ".pytest_cache" / "v" / "cache" / "lastfailed"
_IN_REAL_TIME = tuple(f"tests/{room}/" for room in ("compat", "interop", "spark", "system"))
_MOST = 12
"""More than that is no chance; one cause can make a handful of them fail, so not fewer."""
_SOME_FAILED = 1  # pytest's exit code; others mean that not everything was run


def main(arguments: Sequence[str]) -> int:
    _LAST_FAILED.unlink(missing_ok=True)
    code = _run(*arguments)
    if code != _SOME_FAILED:
        return code
    failed = sorted(json.loads(_LAST_FAILED.read_text()))
    if not may_try_again(failed):
        return code
    _tell("once more, one after the other:", failed)
    code = _run("-n", "0", *failed)
    if code == 0:
        _tell("PASSED ONLY AT THE SECOND TRY, find out why:", failed)
    return code


def may_try_again(failed: Sequence[str]) -> bool:
    return 0 < len(failed) <= _MOST and all(name.startswith(_IN_REAL_TIME) for name in failed)


def _tell(what: str, failed: Sequence[str]) -> None:
    sys.stdout.write("\n  ".join([f"\n{what}", *failed]) + "\n")
    sys.stdout.flush()  # before what pytest writes


def _run(*arguments: str) -> int:
    return subprocess.call([sys.executable, "-m", "pytest", *arguments], cwd=_PROJECT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
