from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from log_bench import LogBench, a_memory_bench

from moldau.storage.files import RealFiles


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    """A bench on the machine's own file system."""
    return LogBench(RealFiles(), tmp_path)


@pytest.fixture
def memory_bench() -> LogBench:
    """A bench on files that fail and crash on request."""
    return a_memory_bench()


@pytest.fixture(scope="session")
def memory_bench_factory() -> Callable[[], LogBench]:
    """For properties, whose examples each need a bench of their own."""
    return a_memory_bench
