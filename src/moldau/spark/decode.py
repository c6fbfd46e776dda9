"""Values of records into columns, by a schema: JSON and Avro.

A value that does not fit the schema makes the column null in its row; it is not dropped, and it is
no error: whoever reads decides what becomes of it. JSON is decoded by Spark itself; Avro by
fastavro in Python workers, since Spark's own reader of Avro is not part of what pip installs.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructType

from moldau.errors import ConfigurationError, MissingExtraError

try:
    from pyspark.sql.pandas.functions import arrow_udf
except ImportError:  # Spark 4.0
    _HAS_ARROW_UDF = False
else:
    _HAS_ARROW_UDF = True

_CORRUPT: Final = "_moldau_corrupt"
_REGISTRY_HEAD_BYTES: Final = 5
"""A zero and the number of the schema, which serializers for schema registries put first."""

MakeRead: TypeAlias = Callable[[], Callable[[bytes | None], object]]


def decode_json(
    frame: DataFrame, schema: StructType | str, *, column: str = "value", into: str = "data"
) -> DataFrame:
    """Add a column `into` with what the JSON in a column says.

    The schema is Spark's: a StructType, or text like "user STRING, amount DOUBLE". Fields that the
    JSON lacks are null, and those that the schema lacks are passed over. Where the text is not
    JSON, or a field has another type, `into` as a whole is null.
    """
    read = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    wanted = cast("StructType", read)
    corrupt = types.StructField(_CORRUPT, types.StringType())
    permissive = StructType([*wanted.fields, corrupt])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = F.from_json(F.col(column).cast("string"), permissive, options)
    found = frame.withColumn(into, parsed)
    fields = [F.col(into)[name].alias(name) for name in wanted.fieldNames()]
    is_sound = F.col(into).isNotNull() & F.col(into)[_CORRUPT].isNull()
    return found.withColumn(into, F.when(is_sound, F.struct(*fields)))


def decode_avro(
    frame: DataFrame,
    schema: str | Mapping[str, object],
    *,
    column: str = "value",
    into: str = "data",
    has_registry_head: bool = False,
) -> DataFrame:
    """Add a column `into` with what the Avro in a column says.

    The schema is Avro's, as JSON or as a dictionary; values are single records without a file's
    head. `has_registry_head` passes over the five bytes that Confluent's serializers put first; the
    schema is the given one all the same. Where a value cannot be decoded `into` is null.
    """
    parsed = _read_avro_schema(schema)
    text = json.dumps(parsed)
    skip_bytes = _REGISTRY_HEAD_BYTES if has_registry_head else 0
    decode = column_decoder(lambda: _avro_reader(text, skip_bytes), spark_type_of(parsed))
    return frame.withColumn(into, decode(F.col(column)))


def _read_avro_schema(schema: str | Mapping[str, object]) -> object:
    if not isinstance(schema, str):
        return dict(schema)
    try:
        return json.loads(schema)
    except ValueError as fault:
        raise ConfigurationError(f"an Avro schema is JSON, and this is none: {fault}") from None


def column_decoder(
    make_read: MakeRead, kind: DataType, *, is_strict: bool = False
) -> Callable[[Column], Column]:
    """A function from a column of bytes to a column of a type. `make_read` is called in Spark's
    Python workers, once for each batch, and gives what reads a value there. A value that does not
    go into the column is null, or fails the query where it `is_strict`."""
    if not _HAS_ARROW_UDF:  # row by row
        return F.udf(_row_decoder(make_read), kind)
    return arrow_udf(_array_decoder(make_read, kind, is_strict), kind)  # type: ignore[call-overload,no-any-return]  # its third argument is optional, whatever the stub says


def spark_type_of(schema: object) -> DataType:
    """Spark's type for a type of Avro; raises ConfigurationError for what has none."""
    if isinstance(schema, list):
        return _type_of_union(schema)
    if isinstance(schema, str):
        schema = {"type": schema}
    if not isinstance(schema, dict):
        raise ConfigurationError(f"{schema!r} is no type of Avro")
    kind, logical = schema.get("type"), schema.get("logicalType")
    if isinstance(kind, dict | list):
        return spark_type_of(kind)
    if kind == "record":
        fields = [
            types.StructField(field["name"], spark_type_of(field["type"]))
            for field in schema["fields"]
        ]
        return types.StructType(fields)
    if kind == "array":
        return types.ArrayType(spark_type_of(schema["items"]))
    if kind == "map":
        return types.MapType(types.StringType(), spark_type_of(schema["values"]))
    if logical == "decimal":
        return types.DecimalType(int(schema["precision"]), int(schema.get("scale", 0)))
    return _plain_type(kind, logical)


def _type_of_union(schema: list[object]) -> DataType:
    others = [one for one in schema if one != "null"]
    if len(others) != 1:
        raise ConfigurationError(f"a union of several types has no column: {json.dumps(schema)}")
    return spark_type_of(others[0])


def _plain_type(kind: object, logical: object) -> DataType:
    by_logical: dict[object, DataType] = {
        "date": types.DateType(),
        "timestamp-millis": types.TimestampType(),
        "timestamp-micros": types.TimestampType(),
        "uuid": types.StringType(),
    }
    by_kind: dict[object, DataType] = {
        "boolean": types.BooleanType(),
        "int": types.IntegerType(),
        "long": types.LongType(),
        "float": types.FloatType(),
        "double": types.DoubleType(),
        "bytes": types.BinaryType(),
        "fixed": types.BinaryType(),
        "string": types.StringType(),
        "enum": types.StringType(),
    }
    found = by_logical.get(logical) or by_kind.get(kind)
    if found is None:
        raise ConfigurationError(f"the Avro type {kind!r} has no column")
    return found


def _row_decoder(make_read: MakeRead) -> Callable[[bytes | None], object]:
    made: list[Callable[[bytes | None], object]] = []  # in the worker, with the first value

    def decode(value: bytes | None) -> object:
        if not made:
            made.append(make_read())
        return made[0](value)

    return decode


def _array_decoder(
    make_read: MakeRead, kind: DataType, is_strict: bool = False
) -> Callable[[pa.Array], pa.Array]:
    """A function from an array of bytes to an array of values."""

    def decode(values: pa.Array) -> pa.Array:
        read = make_read()
        found = [read(one) for one in values.to_pylist()]
        return make_array(found, _arrow_type(kind), is_strict=is_strict)

    # Spark finds out by the annotations what kind of function it is given.
    decode.__annotations__ = {"values": pa.Array, "return": pa.Array}
    return decode


def make_array(found: Sequence[object], kind: pa.DataType, *, is_strict: bool) -> pa.Array:
    """Texts that are not Unicode and numbers that are too large do not go into any column: one such
    value is not to cost all that are beside it."""
    try:
        return pa.array(found, type=kind)
    except (ValueError, TypeError, ArithmeticError):  # Arrow's own errors are among these
        if is_strict:
            raise
    return pa.array([one if _fits(one, kind) else None for one in found], type=kind)


def _fits(value: object, kind: pa.DataType) -> bool:
    try:
        pa.array([value], type=kind)
    except (ValueError, TypeError, ArithmeticError):
        return False
    return True


def _arrow_type(kind: DataType) -> pa.DataType:
    """With times in UTC, which is said in another way since Spark 4.2."""
    try:
        return to_arrow_type(kind, timezone="UTC")
    except TypeError:
        return to_arrow_type(kind)


def _avro_reader(schema_text: str, skip_bytes: int) -> Callable[[bytes | None], object]:
    try:
        from fastavro import parse_schema, schemaless_reader
    except ImportError as error:
        raise MissingExtraError(
            "Avro needs fastavro, which is not installed: pip install 'moldau[spark]'"
        ) from error
    schema = parse_schema(json.loads(schema_text))

    def read(data: bytes | None) -> object:
        if data is None:
            return None
        stream = io.BytesIO(data)
        stream.seek(skip_bytes)
        try:
            found: object = schemaless_reader(stream, schema, None)
        except Exception:  # noqa: BLE001 the decoder stumbles over foreign bytes in many ways
            return None
        return found if stream.tell() == len(data) else None

    return read
