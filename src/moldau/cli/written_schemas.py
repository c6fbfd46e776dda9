"""With which schemas of a registry `moldau produce` writes keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from moldau.cli.schema_options import FORMATS, REGISTRY_WORD, SchemaRegistryUrl, require_format

if TYPE_CHECKING:
    from moldau.cli.line_encoding import Encode
    from moldau.schemas.registry import SchemaRegistry

_Format = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="JSON in, and out as avro, json-schema, protobuf or registry (any of these).",
        show_default="none",
    ),
]
_File = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Write with this schema; it is registered.",
        show_default="the latest version of the subject",
    ),
]
_Id = Annotated[
    int | None,
    typer.Option(metavar="N", help="Write with the schema of this number.", show_default="none"),
]
_Message = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Which message of a Protobuf schema, by its full name.",
        show_default="the first",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSchemas:
    """Options of `moldau produce`."""

    value_format: _Format = None
    value_schema: _File = None
    value_schema_id: _Id = None
    value_message: _Message = None
    key_format: _Format = None
    key_schema: _File = None
    key_schema_id: _Id = None
    key_message: _Message = None
    subject_strategy: Annotated[
        str,
        typer.Option(
            metavar="topic|record|topic-record",
            help="What names the subject of a schema.",
        ),
    ] = "topic"
    auto_register: Annotated[
        bool,
        typer.Option(
            "--auto-register/--no-auto-register",
            help="Whether a schema of a file is registered, or has to be there.",
        ),
    ] = True
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Have the registry put it into its normal form.")
    ] = False
    schema_registry: SchemaRegistryUrl = None

    def encoders(self, topic: str, value_format: str | None) -> tuple[Encode | None, Encode | None]:
        """What encodes keys and values; the registry is asked now. `value_format` may come from
        --format."""
        value_word = require_format(value_format, "--value-format")
        key_word = require_format(self.key_format, "--key-format")
        self._refuse_lonely("key", key_word, self.key_schema, self.key_schema_id)
        self._refuse_lonely("value", value_word, self.value_schema, self.value_schema_id)
        if key_word is None and value_word is None:
            return None, None
        from moldau.cli.schema_options import registry_of_command

        registry = registry_of_command(self.schema_registry)
        return (
            self._encoder(registry, topic, "key", key_word),
            self._encoder(registry, topic, "value", value_word),
        )

    def _refuse_lonely(
        self, field: str, word: str | None, file: Path | None, schema_id: int | None
    ) -> None:
        if word is None and (file is not None or schema_id is not None):
            raise typer.BadParameter(
                f"needs --{field}-format (or --format), which says what is written",
                param_hint=f"--{field}-schema" + ("" if schema_id is None else "-id"),
            )
        if file is not None and schema_id is not None:
            raise typer.BadParameter(
                f"choose one of --{field}-schema and --{field}-schema-id",
                param_hint=f"--{field}-schema",
            )

    def _encoder(
        self,
        registry: SchemaRegistry,
        topic: str,
        field: Literal["key", "value"],
        word: str | None,
    ) -> Encode | None:
        if word is None:
            return None
        from moldau.cli.schema_options import read_schema
        from moldau.schemas.serializing import SchemaSerializer

        is_key = field == "key"
        file = self.key_schema if is_key else self.value_schema
        schema = None
        if file is not None:
            type_word = None if word == REGISTRY_WORD else word
            schema = read_schema(file, type_word, option=f"--{field}-schema")
        serializer = SchemaSerializer(
            registry,
            schema,
            schema_id=self.key_schema_id if is_key else self.value_schema_id,
            subject_strategy=self.subject_strategy,
            auto_register=self.auto_register,
            normalize=self.normalize,
            message=self.key_message if is_key else self.value_message,
            from_documents=True,
            expected_type=FORMATS[word],
        )
        return serializer.for_topic(topic, field)
