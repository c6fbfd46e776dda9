"""Which failures of a whole run are worth a second try."""

from __future__ import annotations

import pytest

from second_try import may_try_again

PROCESS = "tests/system/test_cli.py::test_one"
COMPUTED = "tests/simulation/test_seeds.py::test_seed[7]"


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ([PROCESS], True),
        ([PROCESS, "tests/spark/test_reading.py::test_two"], True),
        ([COMPUTED], False),
        ([PROCESS, COMPUTED], False),
        ([f"{PROCESS}[{number}]" for number in range(12)], True),
        ([f"{PROCESS}[{number}]" for number in range(13)], False),
        ([], False),
    ],
)
def test_few_failures_of_real_processes_get_a_second_try(failed: list[str], expected: bool) -> None:
    assert may_try_again(failed) is expected
