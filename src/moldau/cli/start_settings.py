"""Puts together what `moldau start` was told: the file, --set, then the flags that win."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from moldau.config.broker_options import BrokerOptions
from moldau.config.listener_options import find_listener_declaration
from moldau.config.secrets import expand_secrets
from moldau.config.static import Static, given, load_properties, load_settings
from moldau.errors import UsageError


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
    if config is not None:
        _warn_of_open_secrets(config, settings)
    settings |= load_settings(sets)
    if data_dir is not None:
        settings |= given({"log.dirs": str(data_dir)}, "--data-dir")
    if listen is not None:
        listeners = _to_listener(listen, settings.get("listeners", ""))
        settings |= given({"listeners": listeners}, "--listen")
    if broker_id is not None:
        settings |= given({"broker.id": str(broker_id)}, "--broker-id")
    if zookeeper is not None:
        settings |= given({"zookeeper.connect": zookeeper}, "--zookeeper")
    if adopt_topics:
        settings |= given({"adopt.topics.enable": "true"}, "--adopt-topics")
    if metrics is not None:
        settings |= given({"metrics.listener": metrics}, "--metrics")
    return expand_secrets(settings)


def _warn_of_open_secrets(config: Path, settings: Static) -> None:
    """Passwords in a file that everybody on this machine can read."""
    from moldau.broker.exposure import is_readable_by_all

    if not is_readable_by_all(config):
        return
    for name, value in settings.items():
        declared = BrokerOptions.find_declaration(name) or find_listener_declaration(name)
        if declared is not None and declared.is_sensitive and not value.startswith("${"):
            from moldau.cli.output import note

            note(
                f"moldau: warning: everybody on this machine can read {name} in {config}: "
                "chmod 600 it"
            )
            return


def _to_listener(address: str, in_file: str) -> str:
    """HOST:PORT is another address of the only listener in the file, so that it stays secured as it
    is there, else a plain-text one; a whole listener may be given as well."""
    if "://" in address:
        return address
    _, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise UsageError(
            f"--listen {address} is not of the form HOST:PORT; one looks like 127.0.0.1:9092, "
            "or [::1]:9092"
        )
    name, names_one, _ = in_file.partition("://")
    is_only = bool(names_one) and "," not in in_file
    return f"{name.strip() if is_only else 'PLAINTEXT'}://{address}"


def _read(config: Path) -> str:
    """Java's properties files are Latin-1 by tradition and UTF-8 by habit."""
    data = config.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
