"""The order of the tests in a run with several workers: slow ones first, shared out evenly.

Tests of real processes, Java and Spark wait most of the time, and tests that compute use a core.
With `--dist worksteal` each worker begins with one piece of the list, all pieces of the same
number of tests, and an idle worker later takes the end of the longest piece. So each piece begins
with its share of the slow modules and ends with tests that take milliseconds, which can be handed
on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

SECONDS_PER_TEST = {
    "tests/compat": 1.0,
    "tests/interop": 4.0,
    "tests/interop/test_spark_connector.py": 100.0,
    "tests/mutants/test_sample.py": 13.0,
    "tests/simulation": 16.0,
    "tests/simulation/test_seeds.py": 40.0,
    "tests/spark": 6.0,
    "tests/spark/test_exactly_once_kill.py": 120.0,
    "tests/spark/test_java.py": 110.0,
    "tests/spark/test_pipeline_cluster.py": 240.0,
    "tests/spark/test_pipeline_kill.py": 100.0,
    "tests/spark/test_pipeline_late.py": 30.0,
    "tests/system": 3.0,
    "tests/system/test_pages.py": 20.0,
}
"""Of the folders with slow tests and of single modules, on a busy machine (`pytest --times` shows
them); only the proportions matter."""
SPARK_WORKERS = 2
"""So many begin with tests of Spark, since each of them starts Spark first."""


def deal(node_ids: Sequence[str], workers: int) -> list[int]:
    """The indexes of the tests in the order in which `workers` shall have them."""
    sizes = _piece_sizes(len(node_ids), workers)
    pieces: list[list[int]] = [[] for _ in sizes]
    seconds = [0.0] * workers
    modules = [
        list(group)
        for _, group in groupby(
            range(len(node_ids)), key=lambda index: node_ids[index].partition("::")[0]
        )
    ]
    slow = [module for module in modules if _seconds(node_ids[module[0]]) > 0]
    slow.sort(key=lambda module: -_seconds(node_ids[module[0]]) * len(module))
    chosen = 0
    for module in slow:
        cost = _seconds(node_ids[module[0]])
        is_spark = node_ids[module[0]].startswith("tests/spark/")
        for index in module:
            roomy = [one for one in range(workers) if len(pieces[one]) < sizes[one]]
            few = roomy[:SPARK_WORKERS] if is_spark else roomy
            if index == module[0] or chosen not in roomy:  # a module stays together if it can
                chosen = min(few, key=lambda one: seconds[one])
            pieces[chosen].append(index)
            seconds[chosen] += cost
    dealt = {index for piece in pieces for index in piece}
    quick = iter([index for index in range(len(node_ids)) if index not in dealt])
    for piece, size in zip(pieces, sizes, strict=True):
        piece.extend(next(quick) for _ in range(size - len(piece)))
    return [index for piece in pieces for index in piece]


def _seconds(node_id: str) -> float:
    module = node_id.partition("::")[0]
    folder = "/".join(module.split("/")[:2])
    return SECONDS_PER_TEST.get(module, SECONDS_PER_TEST.get(folder, 0.0))


def _piece_sizes(tests: int, workers: int) -> list[int]:
    """As pytest-xdist cuts the list: what is left, by the workers that are left."""
    sizes = []
    for remaining in range(workers, 0, -1):
        sizes.append(tests // remaining)
        tests -= sizes[-1]
    return sizes


def workers_for(cores: int, memory_bytes: int) -> int:
    """How many workers run the whole suite: three a core if there is memory, since most tests wait.

    A worker with Spark, its Java processes and brokers takes up to three gigabytes.
    """
    return max(cores, min(3 * cores, memory_bytes // (3 << 30)), 1)
