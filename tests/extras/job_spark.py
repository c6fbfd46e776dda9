"""`pip install 'moldau[spark]'`: topics as DataFrames, read and written, and a pipeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import moldau
import moldau.spark
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

[transforms.even]
sql = "SELECT * FROM orders WHERE number % 2 = 0"

[sinks.feed]
topic = "even-orders"

[sinks.lake]
parquet = "lake"
time = "at"
"""

with moldau.testing.broker() as broker:
    spark = moldau.spark.session("local[2]")
    assert os.environ["PYSPARK_PYTHON"].endswith("worker_python.sh"), "workers start slowly"
    rows = [(b"k", b"v%d" % number) for number in range(1000)]
    target = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "clicks"}
    spark.createDataFrame(rows, "key BINARY, value BINARY").write.format("moldau").options(
        **target
    ).mode("append").save()
    source = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "clicks"}
    read = spark.read.format("moldau").options(**source, startingOffsets="earliest").load()
    assert read.count() == 1000, read.count()
    stream = spark.readStream.format("moldau").options(**source, startingOffsets="earliest").load()
    query = (
        stream.select("key", "value")
        .writeStream.format("moldau")
        .options(**{**target, "topic": "copied"}, checkpointLocation=str(Path("copy").absolute()))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300), "the copy does not end"
    spark.stop()

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
    for topic, count in (("copied", 1000), ("even-orders", 50)):
        assert moldau.read_table(topic, bootstrap=broker.bootstrap).num_rows == count, topic
    assert list(Path("lake").rglob("*.parquet")), "nothing in the lake"
