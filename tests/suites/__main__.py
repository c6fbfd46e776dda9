"""`make suites`: runs the suites of other projects, all of them or those that are named.

Each suite ends with a line: how many tests passed, were skipped, failed, and failed as known. A few
tests that failed are run once more. The exit code is 1 when a test failed both times that is not
known to. A suite that cannot run here is left out, and its line says what to install.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from suites.catalogue import SUITES
from suites.results import Outcome, compare
from suites.sources import CACHE, LeftOutError, Suite

MOST_TRIED_AGAIN = 6
"""Suites compare milliseconds and have races of their own: a few tests that failed are run once
more, alone. More failures have a cause that is worth a look."""


def may_try_again(failures: Sequence[Outcome]) -> bool:
    return 0 < len(failures) <= MOST_TRIED_AGAIN and Outcome.BROKEN not in failures


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def try_suite(suite: Suite) -> bool:
    """Whether nothing unexpected failed."""
    title = f"{suite.name} {suite.version}"
    logs = CACHE / "logs" / suite.name
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    log = logs / "tests.log"
    say(f"{title}: running, at most {suite.limit_seconds / 60:.0f} minutes; see {log}")
    began = time.monotonic()
    try:
        outcomes = run(suite, log)
    except LeftOutError as error:
        say(f"{title}: left out: {error}")
        return True
    compared = compare(outcomes, suite.known_differences)
    say(f"{title}: {compared.describe()} ({time.monotonic() - began:.0f} s)")
    for name in compared.unexpected:
        say(f"  failed: {name}")
    for name in compared.without_difference:
        say(f"  passed, though it is listed as a known difference: {name}")
    for name, reason in suite.not_run.items():
        say(f"  not run: {name}: {reason}")
    if compared.passed < suite.least_passed:
        say(f"  failed: at least {suite.least_passed} tests have to pass")
    return not compared.unexpected and compared.passed >= suite.least_passed


def run(suite: Suite, log: Path) -> dict[str, Outcome]:
    """The outcome of every test, and that of the brokers: they end without a traceback."""
    folder = suite.prepare(log)
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="moldau-suite-", ignore_cleanup_errors=True) as place:
        try:
            with suite.brokers(Path(place)) as environment:
                outcomes = suite.run(folder, environment, log)
                failed = compare(outcomes, suite.known_differences).unexpected
                if may_try_again([outcomes[name] for name in failed]):
                    again = suite.run(folder, environment, log, failed)
                    for name in failed:
                        if again.get(name) is Outcome.PASSED:
                            outcomes[name] = Outcome.PASSED
                            say(f"  passed only at the second try: {name}")
        except AssertionError as error:
            with log.open("a", encoding="utf-8") as sink:
                sink.write(f"{error}\n")
            outcomes["the brokers, whose output is at the end of the log"] = Outcome.BROKEN
        for output in Path(place).rglob("broker.out"):
            shutil.copy(output, log.parent / f"{output.parent.name}.log")
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="suites", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    names = parser.parse_args().names or list(SUITES)
    strange = [name for name in names if name not in SUITES]
    if strange:
        parser.error(f"no such suite: {', '.join(strange)}; there are {', '.join(SUITES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers and folders go, too
    try:
        results = [try_suite(SUITES[name]) for name in names]
    except KeyboardInterrupt:
        say("interrupted; the processes of the suite have ended")
        return 130
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
