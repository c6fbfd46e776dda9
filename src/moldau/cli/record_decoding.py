"""Shows records whose keys or values are of a schema registry: as JSON, in any form of `--format`.

A record that cannot be decoded is shown all the same, with what is wrong and its bytes as base64:
nothing is left out, and nothing ends in the middle. What is wrong is said on standard error as
well, for the first few, and the command fails at its end. A registry that does not answer is
another thing: it ends the command, before anything counts as printed that was not.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from moldau.cli.output import warn
from moldau.cli.record_format import Formatter, show_json
from moldau.cli.schema_options import FORMATS
from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaNotFoundError
from moldau.schemas.model import Field
from moldau.schemas.registry import SchemaRegistry
from moldau.schemas.showing import decode_any

_MOST_WARNINGS: Final = 10

_encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedFields:
    """What is decoded, in words of `schema_options.FORMATS`; None is left as it is."""

    key: str | None
    value: str | None

    def wanted(self, field: Field) -> str | None:
        return self.key if field == "key" else self.value


class RecordDecoding:
    """A formatter around another one. It waits for the registry: to be called in a thread."""

    def __init__(
        self,
        registry: SchemaRegistry,
        fields: DecodedFields,
        formatter: Formatter,
        *,
        as_json: bool,
    ) -> None:
        self._registry = registry
        self._fields = fields
        self._formatter = formatter
        self._as_json = as_json
        self.failed_count = 0

    def __call__(self, records: Sequence[ConsumerRecord]) -> bytes:
        if self._as_json:
            return b"".join([self.show_json(one) for one in records])
        return self._formatter([self._as_text(one) for one in records])

    def show_json(self, record: ConsumerRecord, **more: object) -> bytes:
        """As `record_format.show_json`, with documents in place of bytes."""
        key, value = self._document_of(record, "key"), self._document_of(record, "value")
        return show_json(record, key, value, **more)

    def _document_of(self, record: ConsumerRecord, field: Field) -> dict[str, object] | None:
        data = record.key if field == "key" else record.value
        wanted = self._fields.wanted(field)
        if wanted is None or data is None:
            return None
        found = self._decode(record, field, data, wanted)
        if isinstance(found, str):
            return {field + "_base64": base64.b64encode(data).decode(), field + "_error": found}
        key = str(found.guid) if found.id is None else found.id
        return {field: found.value, field + "_schema_id": key}

    def _as_text(self, record: ConsumerRecord) -> ConsumerRecord:
        return record._replace(
            key=self._text_of(record, "key"), value=self._text_of(record, "value")
        )

    def _text_of(self, record: ConsumerRecord, field: Field) -> bytes | None:
        data = record.key if field == "key" else record.value
        wanted = self._fields.wanted(field)
        if wanted is None or data is None:
            return data
        found = self._decode(record, field, data, wanted)
        if isinstance(found, str):
            document: object = {"error": found, "base64": base64.b64encode(data).decode()}
        else:
            document = found.value
        return _encode_json(document).encode(errors="surrogatepass")

    def _decode(
        self, record: ConsumerRecord, field: Field, data: bytes, wanted: str
    ) -> _Found | str:
        """What it says, or what is wrong with it."""
        try:
            found = decode_any(self._registry, data, record.headers, field)
            if FORMATS[wanted] not in (None, found.type):
                raise SchemaDecodingError(
                    f"the {field} is {found.type}, not {wanted}; the format registry takes any"
                )
        except (SchemaDecodingError, SchemaNotFoundError, ConfigurationError) as error:
            self._count_failure(record, str(error))
            return str(error)
        return _Found(found.value, found.id, found.guid)

    def _count_failure(self, record: ConsumerRecord, problem: str) -> None:
        self.failed_count += 1
        if self.failed_count <= _MOST_WARNINGS:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            warn(f"{where} is not decoded: {problem}")
        if self.failed_count == _MOST_WARNINGS:
            warn("further records that are not decoded are only counted")

    def end(self) -> None:
        """Raises when something could not be decoded."""
        if self.failed_count:
            what = "1 key or value was" if self.failed_count == 1 else f"{self.failed_count} were"
            raise SchemaDecodingError(f"{what} not decoded, and printed as base64")


@dataclass(frozen=True, slots=True)
class _Found:
    value: object
    id: int | None
    guid: object
