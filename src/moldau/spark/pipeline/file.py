"""Reads a pipeline file: TOML, or YAML where PyYAML is installed. A shell.

Paths in a file are relative to the folder that the file is in, so that a pipeline does the same
wherever it is started from.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path

from moldau.errors import ConfigurationError, MissingExtraError
from moldau.spark.options import BOOTSTRAP, SourceOptions
from moldau.spark.pipeline.model import LakeSink, Pipeline, Sink
from moldau.spark.pipeline.rules.declaration import read_pipeline

_YAML = (".yaml", ".yml")


def load_pipeline(path: Path) -> Pipeline:
    """The pipeline that a file declares; raises ConfigurationError with all that is wrong."""
    document = _load_document(path)
    folder = path.resolve().parent
    read = read_pipeline(
        document, default_name=path.stem, folder=str(folder), option_fault=_find_option_fault
    )
    if isinstance(read, tuple):
        raise ConfigurationError(_describe(path, read))
    return dataclasses.replace(
        read,
        checkpoint=str(folder / read.checkpoint),
        sinks=tuple(_with_folder(sink, folder) for sink in read.sinks),
    )


def _describe(path: Path, messages: tuple[str, ...]) -> str:
    if len(messages) == 1:
        return f"{path}: {messages[0]}"
    return "\n  ".join([f"{path} has {len(messages)} faults:", *messages])


def _find_option_fault(name: str, value: str) -> str | None:
    """What the source itself would say, once Spark has started."""
    try:
        SourceOptions.read({BOOTSTRAP: "-", "subscribe": "-", name: value}).require_stream()
    except ConfigurationError as fault:
        return str(fault)
    return None


def _with_folder(sink: Sink, folder: Path) -> Sink:
    if isinstance(sink, LakeSink):
        return dataclasses.replace(sink, folder=str(folder / sink.folder))
    return sink


def _load_document(path: Path) -> Mapping[str, object]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path}: is a folder; name the pipeline file in it") from None
    try:
        text = content.decode()
    except UnicodeDecodeError as fault:
        raise ConfigurationError(f"{path}: is not UTF-8: {fault}") from None
    return _load_yaml(path, text) if path.suffix.lower() in _YAML else _load_toml(path, text)


def _load_toml(path: Path, text: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise ConfigurationError(f"{path}: is not TOML: {fault}") from None


def _load_yaml(path: Path, text: str) -> Mapping[str, object]:
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError(
            f"{path}: YAML needs PyYAML, which is not installed: pip install pyyaml; TOML needs "
            "nothing"
        ) from error
    try:
        document: object = yaml.safe_load(text)
    except yaml.YAMLError as fault:
        raise ConfigurationError(f"{path}: is not YAML: {fault}") from None
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: is not a table of keys; see docs/pipelines.md")
    return document
