"""Topics as DataFrames: what `moldau[spark]` adds.

    spark = moldau.spark.session("local[*]")
    frame = spark.read.format("moldau").option("kafka.bootstrap.servers", "127.0.0.1:9092")
    frame.option("subscribe", "clicks").load()

Spark finds the source by itself, through the module `pyspark_moldau`. Names are loaded when they
are asked for: the Python workers of Spark import this package for every task.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, without the import
if TYPE_CHECKING:
    from moldau.spark.decode import decode_avro, decode_json
    from moldau.spark.registry_column import from_registry
    from moldau.spark.rules.offsets_behind import source_metrics
    from moldau.spark.session_factory import session, use_this_python
    from moldau.spark.source import MoldauDataSource
else:
    from moldau.lazy_names import load_on_demand

    __getattr__, __dir__ = load_on_demand(
        __name__,
        {
            "decode": "decode_avro decode_json",
            "registry_column": "from_registry",
            "rules.offsets_behind": "source_metrics",
            "session_factory": "session use_this_python",
            "source": "MoldauDataSource",
        },
    )

__all__ = (
    "MoldauDataSource",
    "decode_avro",
    "decode_json",
    "from_registry",
    "session",
    "source_metrics",
    "use_this_python",
)
