"""The data source `moldau`, as Spark sees it: its name, its schema, and who reads and writes.

A shell, and a thin one: Spark pickles it, and makes it anew in every process that has a part in a
query. Everything beside the face is imported when it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

SHORT_NAME = "moldau"


class MoldauDataSource(DataSource):
    """`spark.read.format("moldau")` and its three siblings."""

    @classmethod
    def name(cls) -> str:
        return SHORT_NAME

    def schema(self) -> StructType:
        """Asked for by every `load()`: the first chance to say that an option is wrong."""
        from moldau.spark.readers import find_schema

        return find_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from moldau.spark.readers import make_batch_reader

        return make_batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from moldau.spark.readers import make_stream_reader

        return make_stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from moldau.spark.writer import make_batch_writer

        return make_batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from moldau.spark.writer import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)
