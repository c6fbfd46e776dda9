"""Lays out an empty coordination store, and gives the cluster and its topics their ids. A shell.

Every broker does this when it starts, before anything else; only the first one finds work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID, uuid4

from moldau.cluster import layout
from moldau.coordination.port import (
    ANY_VERSION,
    Check,
    Coordination,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
)
from moldau.errors import ForeignStoreError, MalformedNodeError, StartupError
from moldau.model import TopicId, format_uuid


def new_topic_id(make_uuid: Callable[[], UUID] | None = None) -> TopicId:
    """Random. Never one that begins with '-' in base64: command lines would take it for a flag."""
    while True:
        identifier = (make_uuid or uuid4)()
        if not format_uuid(identifier).startswith("-"):
            return TopicId(identifier)


async def ensure_layout(
    coordination: Coordination,
    cluster_id: str | None = None,
    make_uuid: Callable[[], UUID] | None = None,
    more_paths: Sequence[str] = (),
    *,
    may_be_new: bool = True,
) -> str:
    """Make what is missing of the classic layout, in one transaction; returns the cluster's id.
    `more_paths` are for what not every broker has: access control lists.

    Unless the store `may_be_new`, it is only completed: one that has lost its cluster's id is
    `ForeignStoreError`, however shortly before somebody has seen it.
    A new cluster gets `cluster_id`, or a random one. A data folder keeps the id of its cluster.
    Serving it in another cluster would mix two sets of offsets, so an id that differs from the
    cluster's stops the start.
    """
    while True:
        first_id = cluster_id or format_uuid(new_topic_id(make_uuid))
        if not await _make_missing(coordination, first_id if may_be_new else None, more_paths):
            break  # else once more: another broker may have started at the same time
    node = await coordination.get(layout.CLUSTER_ID)
    try:
        found = layout.decode_cluster_id(b"" if node is None else node.data)
    except MalformedNodeError as error:
        raise StartupError(f"the cluster's id cannot be read; repair the node: {error}") from error
    if cluster_id not in (None, found):
        raise StartupError(
            f"the data folder belongs to cluster {cluster_id} (meta.properties), but this is "
            f"cluster {found}: start the broker with the coordination store of its cluster, or "
            "with an empty data folder"
        )
    return found


async def require_same_cluster(coordination: Coordination, cluster_id: str) -> None:
    """Raise `ForeignStoreError` unless the store is that of this cluster.

    For a new session: an address may lead to another store than before, or to one that was emptied.
    What it says of topics and leaders is then not about this broker's logs.
    """
    node = await coordination.get(layout.CLUSTER_ID)
    if node is None:
        raise _emptied_store()
    try:
        found = layout.decode_cluster_id(node.data)
    except MalformedNodeError as error:
        raise ForeignStoreError(f"the cluster's id cannot be read; repair it: {error}") from error
    if found != cluster_id:
        raise ForeignStoreError(
            f"the coordination store belongs to cluster {found}, this broker to {cluster_id}: is "
            "zookeeper.connect right, and was the right backup restored? This broker serves "
            "nothing until the store is its own again, and touches nothing on its disks"
        )


def _emptied_store() -> ForeignStoreError:
    return ForeignStoreError(
        "the coordination store is not that of this broker's cluster any more: it has no "
        f"{layout.CLUSTER_ID}. If it lost its data, restore it from a backup; if the address "
        "leads elsewhere now, mend zookeeper.connect. This broker serves nothing until then, "
        "and touches nothing on its disks"
    )


async def _make_missing(
    coordination: Coordination, cluster_id: str | None, more_paths: Sequence[str]
) -> bool:
    """Returns False when nothing was missing. A store without an id gets this one, if any."""
    leaves = (*layout.PERSISTENT_PATHS, *more_paths, layout.CLUSTER_ID)
    paths = list(dict.fromkeys(path for leaf in leaves for path in _path_and_parents(leaf)))
    nodes = await coordination.get_many(paths)
    missing = [path for path, node in zip(paths, nodes, strict=True) if node is None]
    if not missing:
        return False
    contents = {}
    operations: list[Operation] = []
    if cluster_id is None:  # not even when everything goes in this moment
        operations.append(Check(path=layout.CLUSTER_ID, version=ANY_VERSION))
    else:
        contents[layout.CLUSTER_ID] = layout.encode_cluster_id(cluster_id)
    operations += [Create(path=path, data=contents.get(path, b"")) for path in missing]
    try:
        await coordination.transact(operations)
    except NodeExistsError:
        pass  # another broker does the same
    except NoNodeError as error:
        raise _emptied_store() from error
    return True


def _path_and_parents(path: str) -> Iterator[str]:
    """/a/b/c as /a, /a/b, /a/b/c."""
    names = path.split("/")
    return ("/".join(names[:length]) for length in range(2, len(names) + 1))
