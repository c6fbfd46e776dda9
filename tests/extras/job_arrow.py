"""`pip install 'moldau[arrow]'`: topics as tables."""

from __future__ import annotations

import importlib.util

import moldau
import moldau.testing

assert importlib.util.find_spec("pyspark") is None, "the extra brings more than it says"
with moldau.testing.broker() as broker:
    with moldau.Producer(broker.bootstrap) as producer:
        for number in range(100):
            producer.send("clicks", key=b"k", value=str(number).encode())
    table = moldau.read_table("clicks", bootstrap=broker.bootstrap)
    assert table.num_rows == 100, table.num_rows
    assert sorted(int(value) for value in table.column("value").to_pylist()) == list(range(100))
    with moldau.Consumer(
        broker.bootstrap, group="readers", topics=["clicks"], auto_offset_reset="earliest"
    ) as consumer:
        rows = consumer.poll_arrow(30.0).num_rows
    assert rows == 100, rows
    with moldau.Producer(broker.bootstrap) as producer:
        producer.send_arrow("copies", table).result(30.0)
    copied = moldau.read_table("copies", bootstrap=broker.bootstrap, columns=["key", "value"])
    assert copied.equals(table.select(["key", "value"]))
