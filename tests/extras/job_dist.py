"""An installed distribution serves, and says whether its compiled parts are there: `native`, or
`plain` as the argument."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import moldau
import moldau.testing

expected = sys.argv[1]
assert moldau.__version__ == version("moldau")
said = subprocess.run(
    [sys.executable, "-m", "moldau", "--version"], capture_output=True, text=True, check=True
).stdout
assert ("plain Python" in said) == (expected == "plain"), said
with moldau.testing.broker() as broker:
    with moldau.Producer(broker.bootstrap) as producer:
        for number in range(100):
            producer.send("clicks", b"%d" % number)
    assert len(broker.wait_for_records("clicks", 100)) == 100
