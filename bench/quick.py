"""`python -m bench.quick`: compares the cost of some twenty hot paths with the baseline.

Each path runs in a process of its own kind (a broker, a client, a cluster of three) and is counted
with `bench.counters`. The baseline is `baseline.json` beside this file. The exit code is 1 when a
path costs more than its tolerance allows, or when there is no baseline for the counter in use.
`--write` stores the counts as the new baseline; the commit message has to say why they went up.
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
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.counters import Counter, CpuCounter, choose_counter
from bench.frames import CLIENT_ID, Prepared, fetch, make_batch, metadata, produce
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
_STARTS = 2
_FIND_COORDINATOR, _JOIN_GROUP, _SYNC_GROUP, _HEARTBEAT = (10, 4), (11, 9), (14, 5), (12, 4)
"""API keys and versions."""
_INIT_PRODUCER_ID, _ADD_PARTITIONS, _METADATA = (22, 4), (24, 3), (3, 12)
_OFFSET_COMMIT, _OFFSET_FETCH = (8, 8), (9, 8)
_CONSUMER_HEARTBEAT, _SHARE_HEARTBEAT, _SHARE_FETCH = (68, 0), (76, 1), (78, 1)
_MEMBER_ID_REQUIRED = 79
_TOLERANCES = {"broker: start": 1.0}
"""Wider than the counter's. A start may take 0.35 s of CPU time; the baseline is 0.15 s."""
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
        return 1
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
        tolerance = max(counter.tolerance, _TOLERANCES.get(name, 0.0))
        if ratio is not None and ratio > 1 + tolerance:
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
    start = _count_start(counter, module)
    with temporary_folder() as folder:
        python, option, _, *rest = broker_command(folder)
        broker = ServerProcess(counter.wrap([python, option, module, *rest]))
        try:
            broker.wait_until_ready()
            counting = _Counting(counter, broker.pid)
            with RawClient(broker) as client:
                return start | {
                    name: counting.count(work, units) for name, work, units in broker_paths(client)
                }
        finally:
            broker.end()


def _count_start(counter: Counter, module: str) -> dict[str, Counted]:
    """A start with an empty data folder."""
    counts = []
    for _ in range(_STARTS):
        with temporary_folder() as folder:
            python, option, _, *rest = broker_command(folder)
            counts.append(counter.count_start([python, option, module, *rest]))
    counts.sort()
    return {"broker: start": Counted(counts[0], (counts[1] - counts[0]) / counts[0])}


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
    yield "broker: consumer group heartbeat", one_by_one(_join_by_heartbeats(client, topic), 60), 60
    commit, committed = _commit_and_fetch_offsets(client, topic)
    yield "broker: offset commit", one_by_one(commit, 60), 60
    yield "broker: offset fetch", one_by_one(committed, 60), 60
    yield (
        "broker: add partitions to a transaction",
        one_by_one(_join_transaction(client, topic), 60),
        60,
    )
    yield "broker: share fetch at the end", one_by_one(_fetch_by_share_group(client, topic), 60), 60


def _prepare(api: tuple[int, int], values: Mapping[str, object]) -> Prepared:
    """The throttle time is looked at in place of an error, which `_ask_broker` has looked for."""
    frame = encode_request(fit(request_class(*api), values), 1, CLIENT_ID)
    return Prepared(frame, 9, 0)


def _join_by_heartbeats(client: RawClient, topic: str) -> Prepared:
    """The only member of a consumer group (KIP-848), and its heartbeat without news."""
    member: dict[str, object] = {"group_id": "paths-848", "member_id": "", "member_epoch": 0}
    member |= {"instance_id": None, "rack_id": None, "server_assignor": None}
    start = {"rebalance_timeout": 600_000, "subscribed_topic_names": (topic,)}
    joined = _ask_broker(client, _CONSUMER_HEARTBEAT, member | start | {"topic_partitions": ()})
    member |= {"member_id": joined.member_id, "member_epoch": joined.member_epoch}
    quiet = {"rebalance_timeout": -1, "subscribed_topic_names": None}
    owned = [
        {"topic_id": one.topic_id, "partitions": one.partitions}
        for one in joined.assignment.topic_partitions
    ]
    _ask_broker(client, _CONSUMER_HEARTBEAT, member | quiet | {"topic_partitions": owned})
    return _prepare(_CONSUMER_HEARTBEAT, member | quiet | {"topic_partitions": None})


def _commit_and_fetch_offsets(client: RawClient, topic: str) -> tuple[Prepared, Prepared]:
    group = {"group_id": "paths-offsets", "member_id": "", "group_instance_id": None}
    partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    partition["committed_metadata"] = ""
    topics = [{"name": topic, "partitions": [partition]}]
    commit = group | {"generation_id_or_member_epoch": -1, "topics": topics}
    _ask_broker(client, _OFFSET_COMMIT, commit)
    asked = [{"name": topic, "partition_indexes": (0,)}]
    fetched = {"groups": [{"group_id": "paths-offsets", "topics": asked}], "require_stable": False}
    _ask_broker(client, _OFFSET_FETCH, fetched)
    return _prepare(_OFFSET_COMMIT, commit), _prepare(_OFFSET_FETCH, fetched)


def _join_transaction(client: RawClient, topic: str) -> Prepared:
    """One more request for a partition that has joined already."""
    producer = {"transactional_id": "paths", "transaction_timeout": 600_000}
    started = _ask_broker(
        client, _INIT_PRODUCER_ID, producer | {"producer_id": -1, "producer_epoch": -1}
    )
    values = {
        "v3_and_below_transactional_id": "paths",
        "v3_and_below_producer_id": started.producer_id,
        "v3_and_below_producer_epoch": started.producer_epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": (0,)}],
    }
    _ask_broker(client, _ADD_PARTITIONS, values)
    return _prepare(_ADD_PARTITIONS, values)


def _fetch_by_share_group(client: RawClient, topic: str) -> Prepared:
    """The only member of a share group, and a fetch that starts a share session."""
    member = {"group_id": "paths-share", "member_id": "AAAAAAAAAAAAAAAAAAAAAA"}
    heartbeat = {"member_epoch": 0, "rack_id": None, "subscribed_topic_names": (topic,)}
    _ask_broker(client, _SHARE_HEARTBEAT, member | heartbeat)
    asked = {"topics": None, "allow_auto_topic_creation": False}
    described = _ask_broker(
        client, _METADATA, asked | {"include_topic_authorized_operations": False}
    )
    topic_id = next(one.topic_id for one in described.topics if one.name == topic)
    partition = {"partition_index": 3, "acknowledgement_batches": ()}
    values = member | {
        "share_session_epoch": 0,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        "topics": [{"topic_id": topic_id, "partitions": [partition]}],
        "forgotten_topics_data": (),
    }
    _ask_broker(client, _SHARE_FETCH, values)
    return _prepare(_SHARE_FETCH, values)


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
        code = next((one for one in _find_errors(answer) if one), 0)
        if code in (0, _MEMBER_ID_REQUIRED):
            return answer
        if time.perf_counter() > deadline:
            raise RuntimeError(f"error {code} of API {api}")
        time.sleep(0.05)


def _find_errors(answer: object) -> Iterator[int]:
    """The error codes at all levels of an answer."""
    if isinstance(answer, tuple):
        for one in answer:
            yield from _find_errors(one)
    elif is_dataclass(answer):
        for field in fields(answer):
            if field.name == "error_code":
                yield int(getattr(answer, field.name))
            else:
                yield from _find_errors(getattr(answer, field.name))


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
