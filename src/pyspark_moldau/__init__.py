"""The module by which Spark finds the data source `moldau` on its own.

Spark imports every top-level module called `pyspark_…` and registers its `DefaultSource`. It does
so for every session that uses any Python data source, so nothing large is imported here.
"""

from __future__ import annotations

from moldau.spark.source import MoldauDataSource as DefaultSource

__all__ = ("DefaultSource",)
