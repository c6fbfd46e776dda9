"""`meta.properties`: which broker of which cluster a log directory belongs to.

    version=1
    node.id=1
    cluster.id=5q7mWlOxRyS9hrrX9e3zrA
    directory.id=xJ0gvF8lTDuTSrRPl2jFkg

Version 1 is written into new folders. Version 0, which Kafka wrote beside ZooKeeper, calls the id
`broker.id`; either name is read in either version. A folder that came from Kafka keeps its version,
and lines that Moldau does not know: a Kafka of its time reads no other, and somebody may want to go
back. A folder without `directory.id` gets one; Kafka does so from 3.7 on, and ignores it before.

A folder belongs to one broker of one cluster; any other broker refuses it with a message that says
what to do. Kafka's `MetaPropertiesEnsemble`. A codec and a shell, owned by the event loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from moldau.errors import DamagedFileError, StartupError
from moldau.model import BrokerId, format_uuid, parse_uuid
from moldau.storage.files import Files
from moldau.storage.log_directory import LogDirectory
from moldau.storage.rules.file_names import META_PROPERTIES_FILE

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


class MetaPropertiesEnsemble:
    """What the log directories of one broker say of whom they belong to."""

    def __init__(self, new_id: Callable[[], UUID]) -> None:
        """`new_id` gives directories their own ids."""
        self._new_id = new_id
        self._found: dict[Path, MetaProperties | None] = {}  # None: the folder is new

    async def read(self, directory: LogDirectory) -> None:
        files, folder = directory.files, directory.folder
        self._found[folder] = await directory.workers.run(lambda: _read(files, folder))

    @property
    def broker_id(self) -> BrokerId | None:
        """Whose folders these are; None when all of them are new."""
        known = (each.broker_id for each in self._found.values() if each is not None)
        return next((broker_id for broker_id in known if broker_id is not None), None)

    @property
    def cluster_id(self) -> str | None:
        """Whose folders these are; None when all of them are new."""
        known = (each.cluster_id for each in self._found.values() if each is not None)
        return next((cluster_id for cluster_id in known if cluster_id is not None), None)

    @property
    def blank_folders(self) -> list[Path]:
        """Those that are new, or look so: the folder of a disk that is not mounted does."""
        return [folder for folder, each in self._found.items() if each is None]

    def id_of(self, folder: Path) -> str | None:
        """What a folder is known by, wherever it is mounted; None of a new one, or one offline."""
        found = self._found.get(folder)
        if found is None or found.directory_id is None:
            return None
        return format_uuid(found.directory_id)

    def check(self, broker_id: BrokerId, cluster_id: str) -> None:
        """Refuse folders of another broker or another cluster."""
        for folder, found in self._found.items():
            _check(folder, found, broker_id, cluster_id)

    async def claim(self, directory: LogDirectory, broker_id: BrokerId, cluster_id: str) -> None:
        """Make a new folder this broker's; it was checked before."""
        files, folder = directory.files, directory.folder
        found = self._found[folder]
        claimed = replace(
            found or MetaProperties(broker_id=None, cluster_id=None),
            broker_id=broker_id,
            cluster_id=cluster_id,
        )
        if (
            claimed.directory_id is None
        ):  # Kafka gave folders ids from 3.7 on; before, none reads it
            claimed = replace(claimed, directory_id=self._new_id())
        if claimed == found:
            return
        with directory.failing():
            await directory.workers.run(lambda: _write(files, folder, claimed))
        self._found[folder] = claimed


def _check(
    folder: Path, found: MetaProperties | None, broker_id: BrokerId, cluster_id: str
) -> None:
    if found is None:
        return
    if found.cluster_id not in (None, cluster_id):
        raise StartupError(
            f"the data folder {folder} belongs to cluster {found.cluster_id} (meta.properties), "
            f"this broker is in cluster {cluster_id}; use the folder with its own cluster, or "
            "another folder"
        )
    if found.broker_id not in (None, broker_id):
        raise StartupError(
            f"the data folder {folder} belongs to broker {found.broker_id}, this is broker "
            f"{broker_id}; start with --broker-id {found.broker_id}, or use another folder"
        )


def _read(files: Files, folder: Path) -> MetaProperties | None:
    path = folder / META_PROPERTIES_FILE
    try:
        return read_meta_properties(files, path)
    except DamagedFileError as error:
        raise StartupError(f"{path} cannot be read: {error}; repair it or move it away") from error


def _write(files: Files, folder: Path, identity: MetaProperties) -> None:
    write_meta_properties(files, folder / META_PROPERTIES_FILE, identity)
    with contextlib.suppress(OSError):  # its parent need not be ours to read
        files.sync_folder(folder.parent)
