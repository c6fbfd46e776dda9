"""`pip install 'moldau[delta]'`: a pipeline into a Delta table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

import moldau
import moldau.testing

COMMAND = Path(sys.executable).with_name("moldau")
PIPELINE = """
name = "orders"
bootstrap = "{bootstrap}"
checkpoint = "checkpoint"

[sources.orders]
topic = "orders"
format = "json"
schema = "number INT, at TIMESTAMP"

[sinks.lake]
delta = "lake"
time = "at"
"""

with moldau.testing.broker() as broker:
    with moldau.Producer(broker.bootstrap) as producer:
        for number in range(100):
            order = {"number": number, "at": f"2026-01-01T00:00:{number % 60:02d}Z"}
            producer.send("orders", value=json.dumps(order).encode())
    Path("orders.toml").write_text(PIPELINE.format(bootstrap=broker.bootstrap), encoding="utf-8")
    done = subprocess.run(
        (COMMAND, "pipeline", "run", "orders.toml", "--once", "--master", "local[2]"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert DeltaTable("lake").to_pyarrow_table().num_rows == 100
