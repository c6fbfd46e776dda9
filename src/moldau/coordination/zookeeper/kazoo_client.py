"""Requests to ZooKeeper through kazoo: its client with types, requests, errors."""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.exceptions import (
    EXCEPTIONS,
    AuthFailedError,
    ConnectionDropped,
    WriterNotClosedException,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import (
    GetData,
    int_struct,
    multiheader_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import KazooState, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from moldau.coordination.port import (
    BadVersionError,
    Check,
    CoordinationError,
    Create,
    Delete,
    EphemeralParentError,
    NoAccessError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    StoreLostError,
)
from moldau.coordination.tree import ROOT, parent_of
from moldau.coordination.zookeeper.settings import SASL, ZookeeperSettings
from moldau.errors import ConfigurationError, MissingExtraError

# kazoo as it is used here: its client in types, and the handler that leads to our event loop.
#
# All that is known of kazoo's inside is in this module. It is not typed; the protocols are, and
# name only what is used.


_log = logging.getLogger("moldau.coordination.zookeeper")

_kazoo_logger = logging.getLogger("moldau.coordination.zookeeper.kazoo")
_kazoo_logger.setLevel(logging.ERROR)  # it warns at every attempt; the link says it once

SUSPENDED: str = KazooState.SUSPENDED  # without a connection
LOST: str = KazooState.LOST  # without a session
BROKEN = "socket connection broken"
"""What kazoo says when a server ends the connection instead of an answer."""

T_co = TypeVar("T_co", covariant=True)
Event = Callable[["WatchedEvent"], None]


class WatchedEvent(NamedTuple):
    """As kazoo tells it; the type `NONE` only says that the connection is gone."""

    type: str
    state: str
    path: str | None


class Stat(Protocol):
    """What kazoo knows of a node beside its data."""

    @property
    def czxid(self) -> int: ...
    @property
    def mzxid(self) -> int: ...
    @property
    def pzxid(self) -> int: ...
    @property
    def mtime(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def ephemeralOwner(self) -> int | None: ...


class AccessId(Protocol):
    """Whom an entry of an access list is about."""

    @property
    def scheme(self) -> str: ...
    @property
    def id(self) -> str: ...


class AccessEntry(Protocol):
    """One of an access list, as kazoo has it."""

    @property
    def perms(self) -> int: ...
    @property
    def id(self) -> AccessId: ...


class Result(Protocol[T_co]):
    """An answer of kazoo's, there or to come."""

    @property
    def value(self) -> T_co: ...
    @property
    def exception(self) -> Exception | None: ...
    def rawlink(self, callback: Callable[[Result[T_co]], None]) -> None: ...


class Transaction(Protocol):
    def create(
        self, path: str, value: bytes, acl: object, ephemeral: bool, sequence: bool
    ) -> None: ...
    def set_data(self, path: str, value: bytes, version: int) -> None: ...
    def delete(self, path: str, version: int) -> None: ...
    def check(self, path: str, version: int) -> None: ...
    def commit_async(self) -> Result[list[object]]: ...


class Kazoo(Protocol):
    """The part of kazoo's client that is used here."""

    @property
    def client_id(self) -> tuple[int, bytes] | None: ...
    @property
    def connected(self) -> bool: ...
    def get_async(self, path: str) -> Result[tuple[bytes | None, Stat]]: ...
    def exists_async(self, path: str, watch: Event | None = None) -> Result[Stat | None]: ...
    def get_children_async(
        self, path: str, watch: Event | None = None, include_data: bool = False
    ) -> Result[tuple[list[str], Stat]]: ...
    def create_async(
        self, path: str, value: bytes, acl: object, ephemeral: bool, sequence: bool
    ) -> Result[str]: ...
    def set_async(self, path: str, value: bytes, version: int) -> Result[Stat]: ...
    def delete_async(self, path: str, version: int) -> Result[object]: ...
    def get_acls_async(self, path: str) -> Result[tuple[Sequence[AccessEntry], Stat]]: ...
    def set_acls_async(self, path: str, acls: object) -> Result[Stat]: ...
    def sync_async(self, path: str) -> Result[object]: ...
    def transaction(self) -> Transaction: ...
    def start_async(self) -> object: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...


class _AtOnce:
    """kazoo's queue of completions: they only post to the loop, so no thread has to carry them."""

    def put(self, completion: Callable[[], None]) -> None:
        completion()


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo is not typed
    """Carries what kazoo's connection thread has to tell to the event loop, in order."""

    def __init__(
        self,
        connect_timeout_seconds: float,
        new_tls_context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        super().__init__()
        self.completion_queue = _AtOnce()
        self._connect_timeout_seconds = connect_timeout_seconds
        self._new_tls_context = new_tls_context
        self._refusing = False
        self._socket: socket.socket | None = None

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: object) -> None:
        callback.func(*callback.args)  # type: ignore[attr-defined]

    def select(
        self,
        readers: Sequence[socket.socket],
        writers: Sequence[socket.socket],
        _: object,
        timeout: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """As kazoo's own, which makes an epoll object each time, five times per request.

        What TLS has decrypted already is no news to the kernel: kazoo would not read it before
        more comes.
        """
        decrypted = [
            reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()
        ]
        if decrypted:
            timeout = 0
        poll = select.poll()
        for reader in readers:
            poll.register(reader, select.POLLIN)
        for writer in writers:
            poll.register(writer, select.POLLOUT)
        ready = {number for number, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return (
            [reader for reader in readers if reader in decrypted or reader.fileno() in ready],
            [writer for writer in writers if writer.fileno() in ready],
            [],
        )

    def create_connection(
        self, address: tuple[str, int], *, hostname: str | None = None, **_: object
    ) -> socket.socket:
        """`address` is where the host's name has led to; a certificate is for the name."""
        if self._refusing:
            raise OSError(errno.ECONNABORTED, "the session is over")
        connection: socket.socket = super().create_connection(
            address, timeout=self._connect_timeout_seconds
        )
        self._socket = connection
        try:
            if self._new_tls_context is not None:
                secured = _wrap(connection, self._new_tls_context, hostname or address[0])
                connection = self._socket = secured  # before the handshake: `cut` ends that, too
                secured.do_handshake()
            if self._refusing:  # meanwhile
                raise OSError(errno.ECONNABORTED, "the session is over")
        except OSError:
            connection.close()
            raise
        return connection

    def refuse_connections(self) -> None:
        """From now on: kazoo would begin a new session on the next one."""
        self._refusing = True

    def cut(self) -> None:
        """Make kazoo notice that the connection is of no use, and look for another server."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Not by the method of TLS, which would show the rest of the bytes undecrypted.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _wrap(
    connection: socket.socket, new_context: Callable[[], ssl.SSLContext], host: str
) -> ssl.SSLSocket:
    try:
        return new_context().wrap_socket(
            connection, server_hostname=host, do_handshake_on_connect=False
        )
    except (ConfigurationError, MissingExtraError) as error:
        raise OSError(errno.ECONNABORTED, str(error)) from error


def make_client(
    settings: ZookeeperSettings,
    handler: LoopHandler,
    *,
    on_state: Callable[[str], None],
    on_connected: Callable[[float], None],
    on_refused: Callable[[str], None],
) -> Kazoo:
    """Not started. It tells of states, connections and attempts in vain in its thread."""
    client = KazooClient(
        hosts=",".join(settings.servers),
        timeout=settings.session_timeout_seconds,
        handler=handler,
        auth_data=_auth_data(settings),
        sasl_options=_sasl_options(settings),
        connection_retry=KazooRetry(
            max_tries=-1,
            delay=0.05,
            max_delay=min(1.0, settings.session_timeout_seconds / 10),
            sleep_func=handler.sleep_func,
        ),
        logger=_kazoo_logger,
    )
    client.add_listener(on_state)
    _watch_attempts(client, on_connected, on_refused)
    typed: Kazoo = client
    return typed


def send_request(client: Kazoo, request: object) -> Result[Any]:
    """Send a request that kazoo has no method for; it gives its type, its bytes, and reads some."""
    inner: Any = client
    answer: Result[Any] = inner.handler.async_result()
    inner._call(request, answer)
    return answer


def stop_client(client: Kazoo) -> None:
    """End the session and the thread. Blocks."""
    try:
        client.stop()
        client.close()
    except WriterNotClosedException as error:
        _log.warning("a connection to ZooKeeper does not end: %s", error)


def _auth_data(settings: ZookeeperSettings) -> list[tuple[str, str]] | None:
    if not settings.credential or settings.scheme == SASL:
        return None
    return [(settings.scheme, settings.credential)]


def _sasl_options(settings: ZookeeperSettings) -> dict[str, str] | None:
    if not settings.credential or settings.scheme != SASL:
        return None
    user, _, password = settings.credential.partition(":")
    return {"mechanism": "DIGEST-MD5", "username": user, "password": password}


def _watch_attempts(
    client: KazooClient, connected: Callable[[float], None], refused: Callable[[str], None]
) -> None:
    """Hear of every connection, when credentials were sent too, and of the time-out granted; and
    why there is none.

    kazoo keeps the time-out that the server has granted to itself; it returns two thirds of it, in
    milliseconds, to its own loop.
    """
    connection = client._connection
    connect: Callable[..., tuple[float, float]] = connection._connect

    def connect_and_tell(*arguments: object) -> tuple[float, float]:
        try:
            read_timeout_ms, connect_timeout_ms = connect(*arguments)
        except AuthFailedError:
            refused("it refuses zookeeper.auth.credential")
            raise
        except (ConnectionDropped, KazooTimeoutError) as error:
            refused(str(error))
            raise
        connected(read_timeout_ms * 1.5 / 1000)
        return read_timeout_ms, connect_timeout_ms

    connection._connect = connect_and_tell


class UnknownRequestError(CoordinationError):
    """The server is too old for the request; nothing was done."""


_ERRORS: tuple[tuple[type[Exception], type[CoordinationError], str], ...] = (
    (kazoo.NoNodeError, NoNodeError, "the node does not exist"),
    (kazoo.NodeExistsError, NodeExistsError, "the node exists already"),
    (kazoo.BadVersionError, BadVersionError, "the node has another version"),
    (kazoo.NotEmptyError, NotEmptyError, "the node has children"),
    (
        kazoo.NoChildrenForEphemeralsError,
        EphemeralParentError,
        "an ephemeral node cannot have children",
    ),
    (
        kazoo.NoAuthError,
        NoAccessError,
        "ZooKeeper refuses access; is zookeeper.auth.credential the one that made the nodes?",
    ),
    (kazoo.UnimplementedError, UnknownRequestError, "the server does not know the request"),
    (kazoo.BadArgumentsError, UnknownRequestError, "the server does not take the request"),
    (kazoo.SessionExpiredError, SessionExpiredError, "the session is over"),
    (kazoo.AuthFailedError, SessionExpiredError, "ZooKeeper refused the credential"),
)


def translate(error: BaseException) -> CoordinationError:
    """What the table does not name leaves it open whether the request was carried out."""
    for theirs, ours, message in _ERRORS:
        if isinstance(error, theirs):
            return ours(message)
    return StoreLostError(f"ZooKeeper did not answer: {error!r}")


def first_failure(results: Sequence[object]) -> tuple[int, CoordinationError] | None:
    """The operation at which a transaction failed; those around it were only taken along."""
    bystanders = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
    for number, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, bystanders):
            return number, translate(result)
    return None


_SECRET = ("/config/users", "/config/brokers", "/delegation_token")

AccessList = list[AccessEntry]

_MAX_REQUEST_BYTES = 1_000_000
"""A server drops the connection over a larger one, which nobody could tell from a bad network."""

_OPERATION_BYTES = 100  # headers and the access list of one, generously


class Requests:
    """Makes requests with the full paths and access lists of one cluster."""

    def __init__(self, settings: ZookeeperSettings) -> None:
        self._settings = settings

    def create(self, client: Kazoo, operation: Create) -> Result[str]:
        return client.create_async(
            self._settings.full_path(operation.path),
            operation.data,
            self._access(operation.path),
            operation.ephemeral,
            operation.sequential,
        )

    def make_plain(self, client: Kazoo, full_path: str) -> Result[str]:
        """A node on the way to the root, which may be above what is the cluster's own."""
        return client.create_async(full_path, b"", self._access(ROOT), False, False)

    def commit(self, client: Kazoo, operations: Sequence[Operation]) -> Result[list[object]]:
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


# Many reads in one request: ZooKeeper's `multiRead`, which kazoo does not know.
#
# Each request costs two steps of kazoo's thread, and on a busy loop it waits for its turn in each
# of them; a thousand partitions in ten requests are read in the time of ten. Servers have it since
# 3.6; an older one ends the connection.


READS_AT_ONCE = 100
"""A node has up to 1 MB, most have a hundred bytes."""

Found = tuple[bytes | None, Stat] | Exception
"""A node as `get_async` gives it, or why there is none."""

_FAILURE = -1
_GET_DATA = multiheader_struct.pack(GetData.type, False, -1)
_END = multiheader_struct.pack(-1, True, -1)


@dataclass(frozen=True, slots=True)
class MultiRead:
    """A request as kazoo's own: it asks for the type, for the bytes, and for their meaning."""

    paths: tuple[str, ...]

    type: ClassVar[int] = 22

    def serialize(self) -> bytes:
        parts: list[bytes] = []
        for path in self.paths:
            parts += (_GET_DATA, GetData(path, None).serialize())
        return b"".join((*parts, _END))

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Found]:
        found: list[Found] = []
        while True:
            kind, is_done, _ = multiheader_struct.unpack_from(data, offset)
            offset += multiheader_struct.size
            if is_done:
                return found
            if kind == _FAILURE:
                (code,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                found.append(EXCEPTIONS[code]())
            else:
                content, offset = read_buffer(data, offset)
                found.append((content, ZnodeStat._make(stat_struct.unpack_from(data, offset))))
                offset += stat_struct.size


def read_many(client: Kazoo, paths: Sequence[str]) -> Result[list[Found]]:
    return send_request(client, MultiRead(tuple(paths)))
