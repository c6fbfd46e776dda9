"""`python -m bench [NAME ...]`: run benchmarks, print their tables, keep the raw numbers."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path

from bench.report import Goal, Outcome, describe_machine, render_goals, show
from bench.scale import DEFAULT, FULL, GIB, TINY, Scale

BENCHMARKS = (
    "ceilings",
    "produce",
    "fetch",
    "requests",
    "latency",
    "start",
    "growth",
    "validation",
    "clients",
    "clients_produce",
    "clients_consume",
    "arrow",
    "spark_read",
    "replication",
    "replication_partitions",
    "replication_failover",
)


def main() -> int:
    options = _parse_options()
    if options.data_dir is not None:
        os.environ["TMPDIR"] = str(options.data_dir)
    # Ended by a signal, Python would not run the blocks that end the children.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    machine = describe_machine()
    print(", ".join(f"{name} {show(value)}" for name, value in machine.items()), end="\n\n")
    results: dict[str, object] = {"machine": machine}
    goals: list[Goal] = []
    try:
        for name in options.names or BENCHMARKS:
            outcome = _run(name, _scale_of(options))
            results[name] = outcome.as_json()
            goals += outcome.goals
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if goals:
        print(render_goals(goals))
    return 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers here")
    parser.add_argument("--full", action="store_true", help="longer, and with 10 GiB in the log")
    parser.add_argument("--tiny", action="store_true", help="only see that everything works")
    parser.add_argument(
        "--log-gib", type=float, metavar="N", help="size of the large log of growth"
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where brokers keep their data (TMPDIR)"
    )
    options = parser.parse_args()
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"there is no benchmark {name!r}; choose from {', '.join(BENCHMARKS)}")
    return options


def _scale_of(options: argparse.Namespace) -> Scale:
    scale = TINY if options.tiny else FULL if options.full else DEFAULT
    if options.log_gib is not None:
        return dataclasses.replace(scale, log_bytes=int(options.log_gib * GIB))
    return scale


def _run(name: str, scale: Scale) -> Outcome:
    before = time.perf_counter()
    outcome: Outcome = import_module(f"bench.{name}").run(scale)
    for table in outcome.tables:
        print(table.render())
    print(f"({name}: {time.perf_counter() - before:.0f} s)\n", flush=True)
    return outcome


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
