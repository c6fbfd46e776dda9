"""Which schema registry a command asks, and which schemas it writes with.

The address is an option, or stands in the file of --command-config or in the profile, with
Confluent's names (`schema.registry.url`, `basic.auth.user.info`, `schema.registry.ssl.…`). A login
belongs to the address that it stands beside: with another address on the command line it is left
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from moldau.cli.line_parser import Encode
from moldau.cli.options import argument, client_options, flag, option
from moldau.schemas.model import Reference, Schema, SchemaType
from moldau.schemas.registry import SchemaRegistry
from moldau.schemas.serializing import SchemaSerializer
from moldau.schemas.settings import TIMEOUT_MS, URL

REGISTRY_VARIABLE: Final = "MOLDAU_SCHEMA_REGISTRY"

SchemaRegistryUrl = Annotated[
    str | None,
    option(
        "URL",
        "Where the schema registry is; Apicurio's ends with /apis/ccompat/v7.",
        "--schema-registry",
        default="schema.registry.url of --command-config or of the profile",
        envvar=REGISTRY_VARIABLE,
    ),
]

SchemaFile = Annotated[
    Path,
    argument(
        "FILE",
        "The schema: .avsc, .json or .proto, or say --type.",
        exists=True,
        dir_okay=False,
        readable=True,
    ),
]

SchemaTypeName = Annotated[
    str | None,
    option("avro|json-schema|protobuf", "What the file is.", "--type", default="by its name"),
]

References = Annotated[
    list[str] | None,
    option(
        "NAME=SUBJECT:VERSION",
        "A schema that this one uses: the name of the type, the $ref or the import, and where "
        "it is registered; repeat for more.",
        "--reference",
    ),
]

REGISTRY_WORD: Final = "registry"
FORMATS: Final[dict[str, SchemaType | None]] = {
    "avro": "AVRO",
    "json-schema": "JSON",
    "protobuf": "PROTOBUF",
    REGISTRY_WORD: None,
}
"""Words of the command line; the last one is for any type."""

_BY_SUFFIX: Final[dict[str, SchemaType]] = {
    ".avsc": "AVRO",
    ".json": "JSON",
    ".proto": "PROTOBUF",
}
_LOGIN_WORDS: Final = ("basic.auth.", "bearer.auth.", "sasl.")


def registry_of_command(url: str | None, timeout_seconds: float | None = None) -> SchemaRegistry:
    """Raises what is wrong with the settings."""
    settings = settings_at(url, client_options())
    if timeout_seconds is not None:
        settings[TIMEOUT_MS] = str(int(timeout_seconds * 1000))
    if not settings.get(URL):
        raise typer.BadParameter(
            "say where the schema registry is, here or as schema.registry.url in the file of "
            "--command-config or in the profile",
            param_hint="--schema-registry",
        )
    return SchemaRegistry.from_settings(settings)


def settings_at(url: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a file, with another address than it may have: to that goes no login."""
    if url is None:
        return dict(given)

    is_other = given.get(URL) not in (None, url)
    kept = {
        name: value
        for name, value in given.items()
        if not (is_other and name.removeprefix("schema.registry.").startswith(_LOGIN_WORDS))
    }
    return {**kept, URL: url}


def require_format(word: str | None, option: str) -> str | None:
    if word is not None and word not in FORMATS:
        raise typer.BadParameter(f"{word!r} is none of {', '.join(FORMATS)}", param_hint=option)
    return word


def read_schema(
    path: Path, type_word: str | None, references: Iterable[str] = (), option: str = "FILE"
) -> Schema:
    """The schema in a file."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint=option) from None
    found = None if type_word is None else FORMATS[type_word]
    found = found or _BY_SUFFIX.get(path.suffix)
    if found is None:
        raise typer.BadParameter(
            f"the name of {path} does not tell what it is; name it .avsc, .json or .proto, or say "
            "its type",
            param_hint=option,
        )
    return Schema(text=text, type=found, references=tuple(map(_read_reference, references)))


def require_type(word: str | None) -> str | None:
    if word is not None and FORMATS.get(word) is None:
        raise typer.BadParameter(
            f"{word!r} is none of avro, json-schema, protobuf", param_hint="--type"
        )
    return word


def _read_reference(text: str) -> Reference:
    name, _, where = text.partition("=")
    subject, _, version = where.rpartition(":")
    if not name or not subject or not version.isdecimal():
        raise typer.BadParameter(
            f"{text!r} is not of the form NAME=SUBJECT:VERSION", param_hint="--reference"
        )
    return Reference(name=name, subject=subject, version=int(version))


_Format = Annotated[
    str | None,
    option(
        "FORMAT",
        "JSON in, and out as avro, json-schema, protobuf or registry (any of these).",
        default="none",
    ),
]
_File = Annotated[
    Path | None,
    option(
        "FILE",
        "Write with this schema; it is registered.",
        default="the latest version of the subject",
        exists=True,
        dir_okay=False,
        readable=True,
    ),
]
_Id = Annotated[int | None, option("N", "Write with the schema of this number.", default="none")]
_Message = Annotated[
    str | None,
    option("NAME", "Which message of a Protobuf schema, by its full name.", default="the first"),
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
        str, option("topic|record|topic-record", "What names the subject of a schema.")
    ] = "topic"
    auto_register: Annotated[
        bool,
        flag(
            "--auto-register/--no-auto-register",
            "Whether a schema of a file is registered, or has to be there.",
        ),
    ] = True
    normalize: Annotated[
        bool, flag("--normalize", "Have the registry put it into its normal form.")
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
