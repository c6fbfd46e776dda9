"""Whose the log directories are: `meta.properties` of each, read at the start and claimed later.

A folder belongs to one broker of one cluster; any other is refused with a message that says what to
do. Kafka's `MetaPropertiesEnsemble`. A shell, owned by the event loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from moldau.errors import DamagedFileError, StartupError
from moldau.model import BrokerId, format_uuid
from moldau.storage.files import Files
from moldau.storage.log_directory import LogDirectory
from moldau.storage.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from moldau.storage.rules.file_names import META_PROPERTIES_FILE


class DirectoryIdentities:
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
        try:
            await directory.workers.run(lambda: _write(files, folder, claimed))
        except OSError as error:
            raise directory.fail(error) from error
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
