from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from log_bench import LogBench

from moldau.storage.files import RealFiles
from moldau.testing.memory_files import MemoryFiles


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    """A bench on the machine's own file system."""
    return LogBench(RealFiles(), tmp_path)


@pytest.fixture
def memory_bench() -> LogBench:
    """A bench on files that fail and crash on request."""
    return a_memory_bench()


def a_memory_bench() -> LogBench:
    files = MemoryFiles()
    root = Path("data")
    files.make_folder(root)
    files.sync_everything()
    return LogBench(files, root)


@pytest.fixture(scope="session")
def memory_bench_factory() -> Callable[[], LogBench]:
    """For properties, whose examples each need a bench of their own."""
    return a_memory_bench
