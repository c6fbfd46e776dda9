"""Tests of `support.dealing`: every test is in the order once, and slow modules are shared out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from support.dealing import deal, workers_for

GIGABYTE = 1 << 30
_FOLDERS = st.sampled_from(
    ["tests/interop", "tests/spark", "tests/system", "tests/compat", "tests/unit/broker"]
)
_MODULES = st.lists(st.tuples(_FOLDERS, st.integers(1, 9)), max_size=12)


def node_ids(modules: list[tuple[str, int]]) -> list[str]:
    return [
        f"{folder}/test_{number}.py::test_{test}"
        for number, (folder, tests) in enumerate(modules)
        for test in range(tests)
    ]


@given(modules=_MODULES, workers=st.integers(1, 8))
def test_every_test_is_in_the_order_once(modules: list[tuple[str, int]], workers: int) -> None:
    names = node_ids(modules)
    assert sorted(deal(names, workers)) == list(range(len(names)))


def test_each_worker_begins_with_a_slow_module_and_ends_with_quick_tests() -> None:
    names = node_ids([("tests/system", 3), ("tests/system", 3), ("tests/unit/wire", 10)])
    order = deal(names, 2)
    pieces = order[:8], order[8:]
    assert [piece[:3] for piece in pieces] == [[0, 1, 2], [3, 4, 5]]
    assert [index for piece in pieces for index in piece[3:]] == list(range(6, 16))


def test_two_workers_begin_with_spark() -> None:
    names = node_ids([("tests/spark", 2)] * 4 + [("tests/system", 2)] * 4 + [("tests/unit", 40)])
    order = deal(names, 4)
    size = len(names) // 4
    pieces = [order[first : first + size] for first in range(0, len(names), size)]
    assert [any(index < 8 for index in piece) for piece in pieces] == [True, True, False, False]


def test_three_workers_a_core_run_where_there_is_memory() -> None:
    assert workers_for(2, 24 * GIGABYTE) == 6
    assert workers_for(8, 16 * GIGABYTE) == 8
    assert workers_for(1, 2 * GIGABYTE) == 1
