"""`meta.properties`: which broker of which cluster a log directory belongs to.

    version=1
    node.id=1
    cluster.id=5q7mWlOxRyS9hrrX9e3zrA
    directory.id=xJ0gvF8lTDuTSrRPl2jFkg

Version 1 is written into new folders. Version 0, which Kafka wrote beside ZooKeeper, calls the id
`broker.id`; either name is read in either version. A folder that came from Kafka keeps its version,
and lines that are not ours: a Kafka of its time reads no other, and somebody may want to go back.
Where it has no `directory.id` it gets one; Kafka does so from 3.7 on, and passes it over before.

A codec and a tiny shell; what to do when the ids are not those of this broker is for the log store
to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from moldau.errors import DamagedFileError
from moldau.model import BrokerId, format_uuid, parse_uuid
from moldau.storage.files import Files

VERSION = 1
READABLE_VERSIONS = ("0", "1")
_ID_NAMES = ("broker.id", "node.id")  # by version
_OURS = frozenset({"version", "cluster.id", "directory.id", *_ID_NAMES})


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """What the file says. Kafka's version 0 may leave out everything but the version."""

    broker_id: BrokerId | None
    cluster_id: str | None
    directory_id: UUID | None = None
    version: int = VERSION
    others: tuple[tuple[str, str], ...] = ()
    """Lines with names that mean nothing here."""


def encode_meta_properties(properties: MetaProperties) -> bytes:
    pairs = {"version": str(properties.version)}
    if properties.broker_id is not None:
        pairs[_ID_NAMES[properties.version]] = str(properties.broker_id)
    if properties.cluster_id is not None:
        pairs["cluster.id"] = properties.cluster_id
    if properties.directory_id is not None:
        pairs["directory.id"] = format_uuid(properties.directory_id)
    pairs.update(properties.others)
    return "".join(f"{name}={value}\n" for name, value in pairs.items()).encode()


def decode_meta_properties(data: bytes) -> MetaProperties:
    pairs = _decode_pairs(data.decode(errors="replace"))
    version = pairs.get("version")
    if version not in READABLE_VERSIONS:
        raise DamagedFileError(f"meta.properties has version {version!r}, not one of 0 and 1")
    broker_id = pairs.get("node.id", pairs.get("broker.id"))
    directory_id = pairs.get("directory.id")
    try:
        return MetaProperties(
            broker_id=None if broker_id is None else BrokerId(int(broker_id)),
            cluster_id=pairs.get("cluster.id"),
            directory_id=None if directory_id is None else parse_uuid(directory_id),
            version=int(version),
            others=tuple((name, value) for name, value in pairs.items() if name not in _OURS),
        )
    except ValueError as error:
        raise DamagedFileError(f"meta.properties has a value that is no id: {error}") from error


def write_meta_properties(files: Files, path: Path, properties: MetaProperties) -> None:
    """Blocks until it is on disk: call it in a worker."""
    files.replace(path, encode_meta_properties(properties))


def read_meta_properties(files: Files, path: Path) -> MetaProperties | None:
    """None when there is no such file: the log directory is new."""
    return decode_meta_properties(files.read(path)) if files.exists(path) else None


def _decode_pairs(text: str) -> dict[str, str]:
    """As much of Java's properties format as `Properties.store` writes for ids."""
    pairs = {}
    for line in text.splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            name, _, value = line.replace("\\", "").partition("=")
            pairs[name.strip()] = value.strip()
    return pairs
