"""The port's operations as requests to kazoo, and its answers as the port's values."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from moldau.coordination.port import Check, Create, Delete, Node, Operation, SetData
from moldau.coordination.tree import ROOT, parent_of
from moldau.coordination.zookeeper_client import (
    AccessEntry,
    Result,
    Stat,
    StoreClient,
    Transaction,
)
from moldau.coordination.zookeeper_errors import first_failure
from moldau.coordination.zookeeper_settings import ZookeeperSettings

_SECRET = ("/config/users", "/config/brokers", "/delegation_token")

AccessList = list[AccessEntry]

_MAX_REQUEST_BYTES = 1_000_000
"""A server drops the connection over a larger one, which nobody could tell from a bad network."""

_OPERATION_BYTES = 100  # headers and the access list of one, generously


class Requests:
    """Makes requests with the full paths and access lists of one cluster."""

    def __init__(self, settings: ZookeeperSettings) -> None:
        self._settings = settings

    def create(self, client: StoreClient, operation: Create) -> Result[str]:
        return client.create_async(
            self._settings.full_path(operation.path),
            operation.data,
            self._access(operation.path),
            operation.ephemeral,
            operation.sequential,
        )

    def make_plain(self, client: StoreClient, full_path: str) -> Result[str]:
        """A node on the way to the root, which may be above what is the cluster's own."""
        return client.create_async(full_path, b"", self._access(ROOT), False, False)

    def commit(self, client: StoreClient, operations: Sequence[Operation]) -> Result[list[object]]:
        transaction = client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        return transaction.commit_async()

    def _add(self, transaction: Transaction, operation: Operation) -> None:
        path = self._settings.full_path(operation.path)
        match operation:
            case Create():
                transaction.create(
                    path,
                    operation.data,
                    self._access(operation.path),
                    operation.ephemeral,
                    operation.sequential,
                )
            case SetData():
                transaction.set_data(path, operation.data, operation.version)
            case Delete():
                transaction.delete(path, operation.version)
            case Check():
                transaction.check(path, operation.version)

    def created_paths(
        self, operations: Sequence[Operation], results: Sequence[object]
    ) -> Sequence[str]:
        """Raises the error of the operation that failed."""
        failure = first_failure(results)
        if failure is not None:
            number, error = failure
            raise type(error)(f"{operations[number].path}: {error}")
        return [
            self._settings.own_path(result) if isinstance(result, str) else "" for result in results
        ]

    def _access(self, path: str) -> AccessList:
        return access_list(path, is_protected=self._settings.protects_nodes)


def check_operations(operations: Sequence[Operation]) -> None:
    """Only code can ask for these, so it is a `ValueError`, not an answer of the store."""
    size_bytes = 0
    for operation in operations:
        if operation.path == ROOT and isinstance(operation, Delete):
            raise ValueError("the root cannot be deleted")
        data = operation.data if isinstance(operation, Create | SetData) else b""
        size_bytes += len(operation.path) + len(data) + _OPERATION_BYTES
    if size_bytes > _MAX_REQUEST_BYTES:
        raise ValueError(
            f"{len(operations)} operations of about {size_bytes:,} bytes are more than ZooKeeper "
            f"takes in one request ({_MAX_REQUEST_BYTES:,})"
        )


def to_node(answer: tuple[bytes | None, Stat]) -> Node:
    data, stat = answer
    return Node(
        data=data or b"",
        version=stat.version,
        created_id=stat.czxid,
        modified_ms=stat.mtime,
        ephemeral_owner=stat.ephemeralOwner or 0,
    )


def path_and_parents(path: str) -> list[str]:
    """From the top down, without the root."""
    found = []
    while path not in ("", ROOT):
        found.append(path)
        path = parent_of(path)
    return found[::-1]


def access_list(path: str, *, is_protected: bool) -> AccessList:
    """Who may do what with a node to be made at `path`, without the root, as Kafka sets it.

    Without `zookeeper.set.acl` everybody may do everything. With it only the credential that made a
    node may write it; everybody may read it, except where passwords and the like are kept.
    """
    if not is_protected:
        return list(OPEN_ACL_UNSAFE)
    if path.startswith(_SECRET):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
