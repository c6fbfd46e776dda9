"""Protobuf, by Google's library. A shell around it.

Messages are of classes that are made from the registered schema; a program's own generated classes
are written as well, and read by giving the class.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError, EncodeError, Message

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaEncodingError
from moldau.processes import build_module_command
from moldau.schemas.model import ResolvedSchema, SchemaType
from moldau.schemas.rules.framing import make_indexes, read_indexes


class ProtobufCodec:
    """One schema of Protobuf, compiled. Implements `codecs.SchemaCodec`.

    Which of its messages a record is, the record says; `message` is the one that is written.
    """

    schema_type: Final[SchemaType] = "PROTOBUF"

    def __init__(self, schema: ResolvedSchema, message: str | None = None) -> None:
        described = _describe(schema)
        self.pool: Final = _pool_of(described)
        main = described.file[-1]
        self._names: dict[tuple[int, ...], str] = dict(_messages_in(main))
        if not self._names:
            raise ConfigurationError("the Protobuf schema has no message")
        self._indexes = {name: make_indexes(one) for one, name in self._names.items()}
        if message is not None and message not in self._indexes:
            raise ConfigurationError(
                f"the schema has no message {message!r}; it has {', '.join(self._indexes)}"
            )
        self._written = message or self._names[0,]
        self._classes: dict[tuple[int, ...], type[Message]] = {}

    @property
    def name(self) -> str | None:
        return self._written

    def message_class(self, name: str | None = None) -> type[Message]:
        """A class for messages; without a name, of the one that is written."""
        described = self.pool.FindMessageTypeByName(name or self._written)
        found: type[Message] = message_factory.GetMessageClass(described)
        return found

    def read(
        self,
        body: bytes,
        indexes_apart: bytes | None = None,
        *,
        into: type[Message] | None = None,
    ) -> Message:
        """With a class, a message of that: its reader knows better than its writer."""
        indexes, end = read_indexes(indexes_apart or body)
        data = body if indexes_apart else body[end:]
        kind = into or self._classes.get(indexes) or self._make_class(indexes)
        found = kind()
        try:
            found.ParseFromString(data)
        except (DecodeError, ValueError) as error:
            name = found.DESCRIPTOR.full_name
            raise SchemaDecodingError(f"the bytes are no message {name}: {error}") from error
        return found

    def _make_class(self, indexes: tuple[int, ...]) -> type[Message]:
        name = self._names.get(indexes)
        if name is None:
            raise SchemaDecodingError(
                f"the record is of message {list(indexes)} of its schema, which has no such one: "
                "the bytes are damaged, or no Protobuf"
            )
        found = self._classes[indexes] = self.message_class(name)
        return found

    def write(self, value: object) -> bytes:
        """A message, of whichever class, or a document."""
        message = value if isinstance(value, Message) else self.from_document(value)
        assert isinstance(message, Message)  # noqa: S101 of either it is one
        indexes = self._indexes.get(message.DESCRIPTOR.full_name)
        if indexes is None:
            raise SchemaEncodingError(
                f"the message is {message.DESCRIPTOR.full_name}; the schema has "
                f"{', '.join(self._indexes)}"
            )
        try:
            data: bytes = message.SerializeToString()
        except (EncodeError, ValueError) as error:
            raise SchemaEncodingError(f"the message is not complete: {error}") from error
        return indexes + data

    def to_document(self, value: object) -> object:
        if not isinstance(value, Message):
            raise SchemaEncodingError(f"{type(value).__name__} is no message of Protobuf")
        try:
            found: object = json_format.MessageToDict(
                value,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self.pool,
            )
        except (json_format.Error, DecodeError, TypeError, ValueError, RecursionError) as error:
            # Times that no calendar has, an Any of a type that nobody knows, and the like.
            raise SchemaDecodingError(
                f"the message {value.DESCRIPTOR.full_name} cannot be shown: {error}"
            ) from error
        return found

    def from_document(self, document: object) -> Message:
        if not isinstance(document, Mapping):
            raise SchemaEncodingError(
                f"a message {self._written} is a JSON object, not {document!r:.60}"
            )
        made = self.message_class()()
        try:
            json_format.ParseDict(document, made, descriptor_pool=self.pool)
        except (json_format.ParseError, TypeError, ValueError) as error:
            raise SchemaEncodingError(f"this is no message {self._written}: {error}") from error
        return made


def _describe(schema: ResolvedSchema) -> FileDescriptorSet:
    """All files, each before those that need it; the schema's own is the last."""
    main = _read_serialized(schema.schema.text)
    if main is None:
        imported = {name: one.schema.text for name, one in schema.all_referred()}
        return compile_files(schema.schema.text, imported)
    # As Confluent's serializer for Python registers them; its registry makes texts of it.
    main.name = MAIN_FILE
    found: dict[str, FileDescriptorProto] = {}
    for name, one in schema.all_referred():
        described = _read_serialized(one.schema.text)
        if described is None:
            raise ConfigurationError(
                f"the reference {name} is a text, and what refers to it is not"
            )
        described.name = name
        found[name] = described
    ordered: dict[str, FileDescriptorProto] = {}
    _put_in_order(main, found, ordered)
    return FileDescriptorSet(file=ordered.values())


def _read_serialized(text: str) -> FileDescriptorProto | None:
    """The descriptor that a text of base64 stands for; None for a .proto text."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _put_in_order(
    file: FileDescriptorProto,
    known: Mapping[str, FileDescriptorProto],
    ordered: dict[str, FileDescriptorProto],
) -> None:
    for name in file.dependency:
        if name not in ordered:
            _put_in_order(known.get(name) or _google_file(name), known, ordered)
    ordered[file.name] = file


def _google_file(name: str) -> FileDescriptorProto:
    import importlib

    # Only what is Google's is looked for among the modules here: a registry chooses no imports.
    if not name.startswith("google/"):
        raise _not_imported(name)
    try:
        importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
        found = FileDescriptorProto()
        Default().FindFileByName(name).CopyToProto(found)
    except (ImportError, KeyError):
        raise _not_imported(name) from None
    return found


def _not_imported(name: str) -> ConfigurationError:
    return ConfigurationError(
        f"the schema imports {name:.200}, which is not among its registered references"
    )


def _pool_of(described: FileDescriptorSet) -> DescriptorPool:
    pool = DescriptorPool()
    for file in described.file:
        try:
            pool.Add(file)
        except TypeError as error:
            raise ConfigurationError(f"this is no schema of Protobuf: {error}") from error
    return pool


def _messages_in(file: FileDescriptorProto) -> Iterator[tuple[tuple[int, ...], str]]:
    prefix = f"{file.package}." if file.package else ""
    yield from _nested(file.message_type, (), prefix)


def _nested(
    messages: Sequence[DescriptorProto], above: tuple[int, ...], prefix: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    for index, one in enumerate(messages):
        yield (*above, index), prefix + one.name
        yield from _nested(one.nested_type, (*above, index), f"{prefix}{one.name}.")


# From the text of .proto files to their descriptors: Google's own compiler does it. A shell.
#
# Registries keep Protobuf schemas as text, which the library for Python does not read. The compiler
# comes with grpcio-tools; it runs in a process of its own, so that what it has to say can be told,
# and a text that it dies of ends nothing else.


MAIN_FILE: Final = "moldau_main.proto"
_SECONDS: Final = 60.0
_MOST_PROBLEM_CHARACTERS: Final = 400

_BUILT_IN: Final[Mapping[str, str]] = {
    "confluent/meta.proto": """
        syntax = "proto3";
        package confluent;
        import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3";
        package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
}
"""What Confluent's registry knows without a reference."""


def compile_files(main: str, imported: Mapping[str, str]) -> FileDescriptorSet:
    """The descriptors of a text and all it imports, each before those that need it.

    Raises ConfigurationError with what the compiler says, and ImportError without one.
    """
    if find_spec("grpc_tools") is None:
        raise ImportError("there is no grpcio-tools")
    with tempfile.TemporaryDirectory(prefix="moldau-protoc-") as name:
        folder = Path(name)
        sources = folder / "sources"
        for path, text in {**_BUILT_IN, **imported, MAIN_FILE: main}.items():
            file = sources / _checked(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        out = folder / "descriptors"
        _run(
            sources,
            [
                f"--proto_path={sources}",
                *(f"--proto_path={one}" for one in _include_folders()),
                "--include_imports",
                f"--descriptor_set_out={out}",
                MAIN_FILE,
            ],
        )
        return FileDescriptorSet.FromString(out.read_bytes())


def _include_folders() -> list[str]:
    """Google's own types: those of Protobuf, and those of its APIs where they are installed."""
    found = [str(files("grpc_tools") / "_proto")]
    types = find_spec("google.type")
    if types is not None and types.submodule_search_locations:
        found += [str(Path(one).parent.parent) for one in types.submodule_search_locations]
    return found


def _run(sources: Path, arguments: list[str]) -> None:
    command = build_module_command("grpc_tools.protoc", *arguments)
    try:
        done = subprocess.run(  # noqa: S603 our own interpreter, and arguments of ours
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigurationError(
            f"protoc did not compile the schema within {_SECONDS:g} seconds"
        ) from None
    if done.returncode != 0:
        said = done.stderr.strip().replace(f"{sources}/", "").replace(MAIN_FILE, "the schema")
        said = said[-_MOST_PROBLEM_CHARACTERS:]
        raise ConfigurationError(f"this is no schema of Protobuf: {said or 'protoc failed'}")


def _checked(path: str) -> PurePosixPath:
    """A registry names these files: none of them may stand elsewhere."""
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or not found.name or "\0" in path:
        raise ConfigurationError(f"the reference {path!r} is no name of a .proto file")
    return found
