"""Puts together what `moldau start` was told: the file, --set, then the flags that win."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from moldau.config.secrets import expand_secrets
from moldau.config.static import Static, given, load_properties, load_settings
from moldau.errors import ConfigurationError


def gather_settings(
    *,
    config: Path | None,
    sets: Sequence[str],
    data_dir: Path | None,
    listen: str | None,
    broker_id: int | None,
    zookeeper: str | None = None,
    adopt_topics: bool = False,
    metrics: str | None = None,
) -> Static:
    """All settings with where each one stood; what nobody set is left to the defaults."""
    settings = Static({}) if config is None else load_properties(_read(config), config.name)
    settings |= load_settings(sets)
    if data_dir is not None:
        settings |= given({"log.dirs": str(data_dir)}, "--data-dir")
    if listen is not None:
        settings |= given({"listeners": _to_listener(listen)}, "--listen")
    if broker_id is not None:
        settings |= given({"broker.id": str(broker_id)}, "--broker-id")
    if zookeeper is not None:
        settings |= given({"zookeeper.connect": zookeeper}, "--zookeeper")
    if adopt_topics:
        settings |= given({"adopt.topics.enable": "true"}, "--adopt-topics")
    if metrics is not None:
        settings |= given({"metrics.listener": metrics}, "--metrics")
    return expand_secrets(settings)


def _to_listener(address: str) -> str:
    """HOST:PORT is a plain-text listener; a whole listener may be given as well."""
    if "://" in address:
        return address
    _, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise ConfigurationError(
            f"--listen {address} is not of the form HOST:PORT; one looks like 127.0.0.1:9092, "
            "or [::1]:9092"
        )
    return f"PLAINTEXT://{address}"


def _read(config: Path) -> str:
    """Java's properties files are Latin-1 by tradition and UTF-8 by habit."""
    data = config.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
