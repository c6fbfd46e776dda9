"""Serializers and deserializers for Moldau's clients. A shell.

A client asks a serializer once for each topic what to do with its keys or values (`for_topic`), in
a place where waiting holds up nothing. A deserializer that meets a schema for the first time has
the client look it up (LookUpNeededError), and reads the record then; so no event loop ever waits
for a registry. From then on a record costs a look into a dictionary and the codec's own work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from moldau.errors import (
    ConfigurationError,
    LookUpNeededError,
    SchemaDecodingError,
    SchemaNotFoundError,
)
from moldau.records.record import Headers
from moldau.schemas.model import Field, RegisteredSchema, Schema, SchemaKey, SchemaType
from moldau.schemas.registry import SchemaCodec, SchemaRegistry, make_codec
from moldau.schemas.rules.framing import Framed, make_head, parse_strategy, split_frame, subject_of

if TYPE_CHECKING:
    from google.protobuf.message import Message


class SchemaSerializer:
    """Writes keys or values by a schema of a registry, with its number in front.

        registry = moldau.schemas.SchemaRegistry("http://127.0.0.1:8081")
        schema = moldau.schemas.Schema(text=Path("click.avsc").read_text())
        moldau.Producer(..., value_serializer=moldau.schemas.SchemaSerializer(registry, schema))

    With a `schema`, that one: it is registered when the first record of a topic is sent, or with
    `auto_register=False` has to be there. With `schema_id`, the one of that number. With neither,
    the latest version of the subject, as it is when the first record of a topic is sent.

    The subject is that of the topic (`clicks-value`), of the record or of both
    (`subject_strategy`), or the one that is given (`subject`). Values are dictionaries; for
    Protobuf messages, too, of which `message` names one where a file has several. None stays None.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema | None = None,
        *,
        schema_id: int | None = None,
        subject: str | None = None,
        subject_strategy: str = "topic",
        auto_register: bool = True,
        normalize: bool = False,
        message: str | None = None,
        from_documents: bool = False,
        expected_type: SchemaType | None = None,
    ) -> None:
        """`from_documents`: values are as JSON has them, such as texts for times and decimals.
        `expected_type` refuses schemas of another one."""
        if schema is not None and schema_id is not None:
            raise ConfigurationError("give a schema or the number of one, not both")
        self._registry = registry
        self._schema = schema
        self._schema_id = schema_id
        self._subject = subject
        self._strategy = parse_strategy(subject_strategy)
        self._auto_register = auto_register
        self._normalize = normalize
        self._message = message
        self._from_documents = from_documents
        self._expected_type = expected_type

    def for_topic(self, topic: str, field: Field) -> Callable[[object], bytes | None]:
        """What serializes the keys or values of a topic. Asks the registry, and waits for it."""
        registered = self._find(topic, field)
        if registered.id is None:
            raise ConfigurationError("the registry gave no number for the schema")
        if self._expected_type not in (None, registered.schema.type):
            raise ConfigurationError(
                f"the schema {registered.id} is {registered.schema.type}, not {self._expected_type}"
            )
        if self._message is None:
            codec = self._registry.codec_of(registered)
        else:
            codec = make_codec(self._registry.resolve(registered.schema), message=self._message)
        head, write = make_head(registered.id), codec.write
        read = codec.from_document if self._from_documents else None

        def serialize(value: object) -> bytes | None:
            if value is None:
                return None
            return head + write(value if read is None else read(value))

        return serialize

    def _find(self, topic: str, field: Field) -> RegisteredSchema:
        if self._schema_id is not None:
            return self._registry.schema(self._schema_id)
        subject = self._subject_for(topic, field)
        if self._schema is None:
            return self._find_latest(subject)
        if self._auto_register:
            return self._registry.register(subject, self._schema, normalize=self._normalize)
        return self._registry.look_up(subject, self._schema, normalize=self._normalize)

    def _find_latest(self, subject: str) -> RegisteredSchema:
        try:
            return self._registry.version(subject)
        except SchemaNotFoundError as error:
            raise SchemaNotFoundError(
                f"{error}; register a schema for {subject!r}, or write with one that is given",
                error.status,
                error.registry_code,
            ) from error

    def _subject_for(self, topic: str, field: Field) -> str:
        if self._subject is not None:
            return self._subject
        name: str | None = None
        if self._strategy != "topic":
            if self._schema is None:
                raise ConfigurationError(
                    f"the subject name strategy {self._strategy!r} needs the schema: give it, or "
                    "the subject"
                )
            resolved = self._registry.resolve(self._schema)
            name = make_codec(resolved, message=self._message).name
        return subject_of(self._strategy, topic, field, name)


class SchemaDeserializer:
    """Reads keys or values by the schema that they name, of whichever type it is.

        moldau.Consumer(..., value_deserializer=moldau.schemas.SchemaDeserializer(registry))

    Avro and JSON give dictionaries and the like, Protobuf gives messages. With `reader_schema`,
    records of Avro are as that one has them, whichever version they were written with. With
    `message_class`, records of Protobuf are of that class. `as_documents` gives what JSON can say.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        *,
        reader_schema: Schema | None = None,
        message_class: type[Message] | None = None,
        as_documents: bool = False,
    ) -> None:
        if reader_schema is not None and reader_schema.type != "AVRO":
            raise ConfigurationError(
                "a reader's schema is one of Avro; records of Protobuf are read as their "
                "message_class has it, and those of JSON as they are"
            )
        self._registry = registry
        self._reader_schema = reader_schema
        self._reader: SchemaCodec | None = None
        self._making_reader = threading.Lock()
        self._message_class = message_class
        self._as_documents = as_documents

    def __call__(self, data: bytes, headers: Headers = (), field: Field = "value") -> object:
        """Waits for the registry where it has to."""
        while True:
            try:
                return self.deserialize_field(data, headers, field)
            except LookUpNeededError as needed:
                needed.look_up()

    def deserialize_field(self, data: bytes, headers: Headers, field: Field) -> object:
        """Does not wait: raises LookUpNeededError for what has to be looked up first."""
        framed = split_frame(data, headers, field)
        codec = self._registry.find_codec(framed.key)
        if codec is None:
            raise LookUpNeededError(f"schema {framed.key}", partial(self._look_up, framed.key))
        if self._reader_schema is not None and self._reader is None:
            raise LookUpNeededError("the reader's schema", self._make_reader)
        value = self._read(codec, framed)
        return codec.to_document(value) if self._as_documents else value

    def _read(self, codec: SchemaCodec, framed: Framed) -> object:
        if self._reader is not None:
            from moldau.schemas.avro import AvroCodec

            if not isinstance(codec, AvroCodec) or not isinstance(self._reader, AvroCodec):
                raise SchemaDecodingError(f"the record is {codec.schema_type}, not Avro")
            return codec.read(framed.rest, reader=self._reader)
        if self._message_class is not None:
            from moldau.schemas.protobuf import ProtobufCodec

            if not isinstance(codec, ProtobufCodec):
                raise SchemaDecodingError(f"the record is {codec.schema_type}, not Protobuf")
            return codec.read(framed.rest, framed.indexes_apart, into=self._message_class)
        return codec.read(framed.rest, framed.indexes_apart)

    def _look_up(self, key: SchemaKey) -> None:
        # What is wrong with a record's schema is remembered, and told of the record then.
        with suppress(SchemaNotFoundError, ConfigurationError):
            self._registry.codec(key)

    def _make_reader(self) -> None:
        with self._making_reader:
            if self._reader is None and self._reader_schema is not None:
                self._reader = make_codec(self._registry.resolve(self._reader_schema))
