"""What a client loads before it has said anything: a command of a few records is mostly that."""

from __future__ import annotations

import subprocess
import sys

import pytest

SHOW = "import sys; import {}; print(*sorted(sys.modules), sep='\\n')"
SPARED = (
    "kio.serial",  # its classes are made for messages that few clients send
)


@pytest.mark.parametrize(
    "module", ["moldau.client.consumer.consumer", "moldau.client.producer.producer"]
)
def test_consumers_and_producers_begin_without_what_few_of_them_use(module: str) -> None:
    done = subprocess.run(
        (sys.executable, "-c", SHOW.format(module)), capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert module in loaded
    assert not [name for name in loaded if name.startswith(SPARED)]
