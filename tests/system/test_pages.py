"""Pages of the documentation, followed as they stand: `support.pages` says how."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.pages import PAGES, PageReader
from support.schema_registry import serve_registry

BESIDE_A_BROKER = {"client.md", "schemas.md"}
"""Pages that take a broker on the usual port for granted."""
BESIDE_A_REGISTRY = {"schemas.md"}
REGISTRY_PORT = 8081


@pytest.mark.parametrize(
    ("page", "blocks", "says"),
    [
        ("client.md", 9, "no-such-topic"),
        ("schemas.md", 3, "Basket {'first': {'n': 5}}"),
        ("first-five-minutes.md", 7, "alice looked at checkout"),
        ("from-testcontainers.md", 3, "2 passed"),
        ("upgrading.md", 4, "bob owes 7"),
        ("migrating.md", 1, "12"),
        ("pipelines-as-a-service.md", 2, "clicks-to-lake"),
        ("deploying.md", 0, ""),
        ("containers.md", 0, ""),
    ],
)
def test_a_page_runs_as_it_stands(
    page: str, blocks: int, says: str, tmp_path: Path, ctrl_c: None
) -> None:
    """`blocks` is how many have to be run at least; `says`, what has to be in what they print."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    reader = PageReader(PAGES / page, tmp_path, {**os.environ, "PATH": path})

    with ExitStack() as beside:
        if page in BESIDE_A_REGISTRY:
            beside.enter_context(serve_registry(reader.moved(REGISTRY_PORT)))
        done = reader.follow(beside_a_broker=page in BESIDE_A_BROKER)

    assert done >= blocks
    assert says in reader.said
