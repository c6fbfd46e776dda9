"""Topics as DataFrames: what `moldau[spark]` adds.

    spark = moldau.spark.session("local[*]")
    frame = spark.read.format("moldau").option("kafka.bootstrap.servers", "127.0.0.1:9092")
    frame.option("subscribe", "clicks").load()

Spark finds the source by itself, through the module `pyspark_moldau`. Names are loaded when they
are asked for: the Python workers of Spark import this package for every task.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.spark.decode import decode_avro, decode_json
    from moldau.spark.registry_columns import from_registry
    from moldau.spark.rules.offsets import source_metrics
    from moldau.spark.session_factory import session, use_this_python
    from moldau.spark.source import MoldauDataSource
else:
    _HOMES = {
        "MoldauDataSource": "moldau.spark.source",
        "decode_avro": "moldau.spark.decode",
        "decode_json": "moldau.spark.decode",
        "from_registry": "moldau.spark.registry_columns",
        "session": "moldau.spark.session_factory",
        "source_metrics": "moldau.spark.rules.offsets",
        "use_this_python": "moldau.spark.session_factory",
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__():
        special = (name for name in globals() if name.startswith("__"))
        return sorted({*special, *_HOMES})


__all__ = (
    "MoldauDataSource",
    "decode_avro",
    "decode_json",
    "from_registry",
    "session",
    "source_metrics",
    "use_this_python",
)
