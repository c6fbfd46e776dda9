"""`python -m bench.quick`: have a dozen hot paths become dearer? In under two minutes.

Every path is counted in a process of its own kind (a broker; a client; a cluster of three) with
`bench.counters`, and held against `baseline.json` beside this file. A path that does more than the
baseline by more than the counter's tolerance ends the run with 1. `--write` keeps what was counted
as the new baseline; say in the change why it is dearer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.counters import Counter, CpuCounter, choose_counter
from bench.frames import (
    CLIENT_ID,
    Prepared,
    fetch,
    make_batch,
    metadata,
    produce,
)
from bench.processes import (
    ServerProcess,
    broker_command,
    running_broker,
    temporary_folder,
    usual_environment,
)
from bench.quick_worker import CLUSTER_PATHS, PATHS
from bench.raw_client import RawClient
from bench.report import Table
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

BASELINE = Path(__file__).with_name("baseline.json")
_WARM_ROUNDS = 3
_ROUNDS = 7
_FIND_COORDINATOR, _JOIN_GROUP, _SYNC_GROUP, _HEARTBEAT = (10, 4), (11, 9), (14, 5), (12, 4)
"""API keys and versions."""
_MEMBER_ID_REQUIRED = 79
_COORDINATOR_SECONDS = 60.0
_IN_FLIGHT = 32


class Counted(NamedTuple):
    """The least of some rounds for one request or record, and how far the next one was from it."""

    cost: float
    spread: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quick", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the counts as the baseline")
    parser.add_argument("--cpu", action="store_true", help="count CPU time, whatever there is")
    options = parser.parse_args()
    os.environ["PYTHONHASHSEED"] = "0"  # of the children: sets and dicts in the same order
    counter = CpuCounter() if options.cpu else choose_counter()
    before = time.perf_counter()
    found = count_all(counter)
    seconds = time.perf_counter() - before
    key = (
        f"{counter.name}, Python {sys.version_info[0]}.{sys.version_info[1]}, {platform.machine()}"
    )
    kept = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    regressed = _show(counter, found, kept.get(key, {}), seconds)
    if options.write:
        kept[key] = {name: round(one.cost, 1) for name, one in found.items()}
        BASELINE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"kept as the baseline of {key}")
        return 0
    if key not in kept:
        print(f"there is no baseline of {key}: `make bench-baseline` writes one")
        return 0
    if regressed:
        print(f"dearer than the baseline: {', '.join(regressed)}")
        print("mend it, or write the baseline anew (make bench-baseline) and say why")
    return 1 if regressed else 0


def _show(
    counter: Counter, found: dict[str, Counted], baseline: dict[str, float], seconds: float
) -> list[str]:
    """Prints the table; the paths that are dearer than they may be."""
    table = Table(
        title=f"Hot paths by {counter.name}, {seconds:.0f} s",
        columns=("path", "counted", "baseline", "ratio", "next round +%"),
        note=f"Per request or record; more than {1 + counter.tolerance:.2f} of the baseline fails.",
    )
    regressed = []
    for name, one in found.items():
        known = baseline.get(name)
        ratio = one.cost / known if known else None
        table.add(name, one.cost, known, ratio, one.spread * 100)
        if ratio is not None and ratio > 1 + counter.tolerance:
            regressed.append(f"{name} ({ratio:.2f})")
    print(table.render())
    return regressed


def count_all(counter: Counter) -> dict[str, Counted]:
    """Side by side where that changes no count."""
    parts = (count_broker, count_clients, count_cluster)
    with ThreadPoolExecutor(len(parts) if counter.is_undisturbed else 1) as pool:
        found = list(pool.map(lambda count: count(counter), parts))
    return {name: one for part in found for name, one in part.items()}


class _Counting:
    """Counts one process. Rounds are short, so that periodic work is in a few of them only."""

    def __init__(self, counter: Counter, pid: int) -> None:
        self._counter, self._pid = counter, pid
        counter.attach(pid)

    def count(self, work: Callable[[], None], units: int) -> Counted:
        for _ in range(_WARM_ROUNDS):
            work()
        counts = sorted(self._counter.count(self._pid, work) / units for _ in range(_ROUNDS))
        # The least: whatever came in between can only have added to it.
        return Counted(counts[0], (counts[1] - counts[0]) / max(counts[0], 1e-9))


# --- the broker -------------------------------------------------------------------------------


def count_broker(counter: Counter, module: str = "moldau") -> dict[str, Counted]:
    """Of `moldau`, or of another module that is started like it."""
    with temporary_folder() as folder:
        python, option, _, *rest = broker_command(folder)
        broker = ServerProcess(counter.wrap([python, option, module, *rest]))
        try:
            broker.wait_until_ready()
            counting = _Counting(counter, broker.pid)
            with RawClient(broker) as client:
                return {
                    name: counting.count(work, units) for name, work, units in broker_paths(client)
                }
        finally:
            broker.end()


def broker_paths(client: RawClient) -> Iterator[tuple[str, Callable[[], None], int]]:
    """Name, work, and how many requests that is."""
    topic = client.create_topic("paths", partitions=100)
    small, large = make_batch(1, 100), make_batch(128 << 10, 1 << 10)
    small_produce = produce(topic, small)
    at_end = fetch(topic, 0, max_bytes=1 << 20, partition=1)
    large_produce = produce(topic, large, partition=2)
    large_fetch = fetch(topic, 0, max_bytes=128 << 10, partition=2)

    def one_by_one(prepared: Prepared, count: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(count):
                client.exchange(prepared)

        return work

    def together(prepared: Prepared, rounds: int) -> Callable[[], None]:
        """Those of a round leave and arrive as one."""
        frames = prepared.frame * _IN_FLIGHT

        def work() -> None:
            for _ in range(rounds):
                client.send(frames)
                for _ in range(_IN_FLIGHT):
                    client.receive()

        return work

    yield "broker: small produce, one at a time", one_by_one(small_produce, 60), 60
    yield "broker: small produce, 32 at a time", together(small_produce, 4), 4 * _IN_FLIGHT
    yield "broker: fetch at the end, one at a time", one_by_one(at_end, 60), 60
    yield "broker: produce of 128 KiB", one_by_one(large_produce, 40), 40
    yield "broker: fetch of 128 KiB", one_by_one(large_fetch, 40), 40
    yield "broker: metadata of 100 partitions", one_by_one(metadata(), 40), 40
    yield "broker: group heartbeat", one_by_one(_join(client), 60), 60


def _join(client: RawClient) -> Prepared:
    """The only member of a group, and its heartbeat."""
    _ask_broker(client, _FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["paths"]})
    member = {"group_id": "paths", "member_id": "", "group_instance_id": None}
    protocol = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    times = {"session_timeout": 600_000, "rebalance_timeout": 600_000, "reason": None}
    joined = _ask_broker(client, _JOIN_GROUP, member | protocol | times)
    member["member_id"] = joined.member_id
    joined = _ask_broker(client, _JOIN_GROUP, member | protocol | times)
    generation = {"generation_id": joined.generation_id}
    names = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    _ask_broker(client, _SYNC_GROUP, member | generation | names)
    entity = fit(request_class(*_HEARTBEAT), member | generation)
    # The answer: length, correlation id, tags, throttle time, and then the error.
    return Prepared(encode_request(entity, 1, CLIENT_ID), 13, 0)


def _ask_broker(client: RawClient, api: tuple[int, int], values: Mapping[str, object]) -> Any:
    """Until the coordinator is there; that a member id is needed is an answer too."""
    frame = encode_request(fit(request_class(*api), values), 1, CLIENT_ID)
    deadline = time.perf_counter() + _COORDINATOR_SECONDS
    while True:
        client.send(frame)
        _, answer = parse_response(*api, client.receive()[4:])
        code = int(getattr(answer, "error_code", 0))
        if code in (0, _MEMBER_ID_REQUIRED):
            return answer
        if time.perf_counter() > deadline:
            raise RuntimeError(f"error {code} of API {api}")
        time.sleep(0.05)


# --- clients, codec, three brokers ------------------------------------------------------------


def count_clients(counter: Counter) -> dict[str, Counted]:
    with running_broker() as broker:
        return _count_worker(counter, PATHS, broker.bootstrap)


def count_cluster(counter: Counter) -> dict[str, Counted]:
    return _count_worker(counter, CLUSTER_PATHS)


def _count_worker(counter: Counter, paths: Mapping[str, int], *given: str) -> dict[str, Counted]:
    process = subprocess.Popen(
        counter.wrap([sys.executable, "-m", "bench.quick_worker", *given]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=usual_environment(),
    )
    try:
        _require(process)
        counting = _Counting(counter, process.pid)
        return {
            name: counting.count(partial(_ask, process, name), units)
            for name, units in paths.items()
        }
    finally:
        process.kill()
        process.communicate()


def _ask(process: subprocess.Popen[str], name: str) -> None:
    if process.stdin is not None:
        process.stdin.write(f"{name}\n")
        process.stdin.flush()
    _require(process)


def _require(process: subprocess.Popen[str]) -> None:
    line = process.stdout.readline() if process.stdout is not None else ""
    if line.strip() != "done":
        raise RuntimeError(f"the worker said {line.strip() or 'nothing'}")


if __name__ == "__main__":
    sys.exit(main())
