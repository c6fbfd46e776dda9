"""From the text of .proto files to their descriptors: Google's own compiler does it. A shell.

Registries keep Protobuf schemas as text, which the library for Python does not read. The compiler
comes with grpcio-tools; it runs in a process of its own, so that what it has to say can be told,
and a text that it dies of ends nothing else.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from moldau.errors import ConfigurationError
from moldau.processes import module_command

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
    command = module_command("grpc_tools.protoc", *arguments)
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
