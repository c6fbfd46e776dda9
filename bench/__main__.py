"""`python -m bench [NAME ...]`: compare with other systems, and study our own parts.

A name is a row (`produce/128k-of-1024`), a group of rows (`produce`), a pattern of either, or a
study. `compare` stands for all rows, `studies` for all studies; without a name it is both.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import chart, compare
from bench.compare import Found
from bench.report import (
    Goal,
    Outcome,
    describe_machine,
    render_found,
    render_goals,
    show,
    write_page,
)
from bench.rows import ROWS, Row
from bench.scale import DEFAULT, FULL, GIB, TINY, Scale
from bench.systems import SYSTEMS

STUDIES = {
    "ceilings": "what the machine can do: memory, page cache, loopback, sendfile",
    "start": "where the time of a start goes, by package",
    "growth": "cost per request with gigabytes in the log, and with 2,000 partitions",
    "cleaner": "compaction: MB/s, CPU, memory, and what a reader and a writer notice",
    "counting": "what the broker's own metrics cost, request by request",
    "loop": "the longest turn of the event loop, under requests of many kinds",
    "validation": "looking inside batches, native codec and its twin in Python",
    "clients_produce": "Moldau's producer beside confluent-kafka, aiokafka, kafka-python",
    "clients_consume": "Moldau's consumer beside the same",
    "lines": "`moldau produce` and `consume` of a million lines beside kcat",
    "queues": "share groups beside consumer groups and Redis Streams: records/s, latency",
    "group_settle": "a hundred members, a thousand partitions: classic beside consumer protocol",
    "arrow": "records to columns, a topic to an Arrow table",
    "exactly_once": "transactions beside plain records; latency to readers of committed ones",
    "spark_exactly_once": "a Spark stream exactly once beside at least once",
    "spark_read": "rows/s with Spark, beside its own connector",
    "replication_partitions": "an acks=all record beside up to 10,000 partitions",
    "replication_failover": "a dead leader and a dead controller; memory of a replica",
    "quotas": "how exactly quotas are held for confluent-kafka, and what others notice",
    "scale_model": "the cost model of docs/scale.md, predicted against measured",
}


def main() -> int:
    options = _parse_options()
    if options.list:
        _list()
        return 0
    if options.data_dir is not None:
        os.environ["TMPDIR"] = str(options.data_dir)
    # Ended by a signal, Python would not run the blocks that end the children.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    machine = describe_machine()
    print(", ".join(f"{name} {show(value)}" for name, value in machine.items()), end="\n\n")
    if options.read is not None:
        _show_again(options)
        return 0
    results: dict[str, Any] = {"machine": {**machine, "date": time.strftime("%Y-%m-%d")}}
    rows, studies = _choose_names(options.names)
    try:
        if rows:
            _compare(rows, options, results)
        goals = [goal for name in studies for goal in _study(name, options, results)]
        if goals:
            print(render_goals(goals))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="see --list")
    parser.add_argument("--list", action="store_true", help="show rows, studies and systems")
    parser.add_argument(
        "--against", metavar="NAMES", help="only beside these: kafka,redis,nats,mock,plain"
    )
    parser.add_argument("--minutes", type=float, metavar="N", help="bound the rows' total time")
    parser.add_argument("--quick", action="store_true", help="see that everything works")
    parser.add_argument("--full", action="store_true", help="studies: longer, 10 GiB in the log")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the raw numbers here")
    parser.add_argument("--read", type=Path, metavar="FILE", help="show such a file again")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="draw the rows as SVG here")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="put table and chart into this page, as docs/benchmarks.md has them",
    )
    parser.add_argument("--log-gib", type=float, metavar="N", help="size of growth's large log")
    parser.add_argument(
        "--megabytes", type=int, metavar="N", help="size of the log that cleaner compacts"
    )
    parser.add_argument("--keys", type=int, metavar="N", help="how many keys it has")
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where systems keep their data (TMPDIR)"
    )
    options = parser.parse_args()
    for name in options.names:
        if not _matching_rows(name) and name not in STUDIES and name != "studies":
            parser.error(f"there is no row, group or study {name!r}; --list shows them")
    return options


def _list() -> None:
    for row in ROWS:
        print(f"{row.name:34} {row.title} [{', '.join(row.systems)}]")
    print()
    for name, title in STUDIES.items():
        print(f"{name:34} {title}")
    print()
    for name, system in SYSTEMS.items():
        obstacle = system.find_obstacle()
        print(f"{name:34} {system.title}{f': missing, {obstacle}' if obstacle else ''}")


def _matching_rows(name: str) -> list[Row]:
    return [
        row
        for row in ROWS
        if name == "compare" or fnmatch(row.name, name) or fnmatch(row.group, name)
    ]


def _choose_names(names: Sequence[str]) -> tuple[list[Row], list[str]]:
    wanted = names or ("compare", "studies")
    chosen = {row.name for name in wanted for row in _matching_rows(name)}
    studies = [name for name in STUDIES if name in wanted or "studies" in wanted]
    return [row for row in ROWS if row.name in chosen], studies


def _compare(rows: list[Row], options: argparse.Namespace, results: dict[str, object]) -> None:
    against = options.against.split(",") if options.against else None
    missing = {name: system.find_obstacle() for name, system in SYSTEMS.items()}
    systems = {
        row.name: [
            name
            for name in row.systems
            if not missing[name]
            and (against is None or SYSTEMS[name].family in ("moldau", *against))
        ]
        for row in rows
    }
    chosen, effort = compare.choose(rows, systems, options.minutes)
    if options.quick:
        effort = compare.QUICK
        chosen = [compare.quick(row) for row in chosen]
    left_out = [f"{row.name}: no time for it" for row in rows if row not in chosen]
    left_out = [] if options.quick else left_out
    left_out += [f"{name}: {why}" for name, why in missing.items() if why]
    seconds = sum(compare.estimate_seconds(row, systems[row.name], effort) for row in chosen)
    _tell(
        f"{len(chosen)} rows, {effort.repetitions} samples of {effort.seconds} s each, "
        f"about {seconds / 60:.0f} minutes"
    )
    found: list[Found] = []
    try:
        for one in compare.run_rows(chosen, systems, effort, _tell):
            found.append(one)
            results["rows"] = [each.as_json() for each in found]
    finally:
        results["left out"] = left_out
        _publish(found, left_out, options, results)


def _show_again(options: argparse.Namespace) -> None:
    results = json.loads(options.read.read_text(encoding="utf-8"))
    found = [one for one in map(Found.read_json, results["rows"]) if one is not None]
    _publish(found, results["left out"], options, results)


def _publish(
    found: Sequence[Found],
    left_out: Sequence[str],
    options: argparse.Namespace,
    results: dict[str, Any],
) -> None:
    if not found:
        return
    print(render_found(found, left_out))
    drawn: Path | None = options.chart
    if drawn is None and options.write is not None:
        drawn = options.write.with_suffix(".svg")
    if drawn is not None:
        drawn.write_text(chart.draw(found), encoding="utf-8")
    if options.write is not None:
        write_page(options.write, found, left_out, drawn, results["machine"])
        if options.json is None:
            kept = options.write.with_suffix(".json")
            kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _tell(line: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def _study(name: str, options: argparse.Namespace, results: dict[str, object]) -> list[Goal]:
    before = time.perf_counter()
    _tell(f"study {name}")
    try:
        outcome: Outcome = import_module(f"bench.{name}").run(_scale_of(options))
    except Exception as error:  # noqa: BLE001 a row that fails ends no run
        _tell(f"{name} failed: {type(error).__name__}: {error}")
        results[name] = {"failed": f"{type(error).__name__}: {error}"}
        return []
    for table in outcome.tables:
        print(table.render())
    print(f"({name}: {time.perf_counter() - before:.0f} s)\n", flush=True)
    results[name] = outcome.as_json()
    return outcome.goals


def _scale_of(options: argparse.Namespace) -> Scale:
    scale = TINY if options.quick else FULL if options.full else DEFAULT
    if options.log_gib is not None:
        scale = dataclasses.replace(scale, log_bytes=int(options.log_gib * GIB))
    if options.megabytes is not None:
        scale = dataclasses.replace(scale, cleaner_bytes=options.megabytes * 1_000_000)
    if options.keys is not None:
        scale = dataclasses.replace(scale, cleaner_keys=options.keys)
    return scale


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
