"""The clients of one cluster, as the console uses them, and its brokers as rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import ClusterDescription, LogDirDescription
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.consumer.simple_consumer import AsyncSimpleConsumer
from moldau.client.producer.producer import AsyncProducer
from moldau.client.rules.cluster_metadata import Address, TopicMetadata
from moldau.clock import Clock, SystemClock
from moldau.config.client_options import (
    AdminOptions,
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
)
from moldau.console.record_view import KeptRecord, SchemaReading, keep
from moldau.console.settings import ConsoleSettings
from moldau.errors import ConfigurationError, KafkaError, MoldauError, RegistryUnreachableError
from moldau.ops.cluster_view import count_replicas

if TYPE_CHECKING:
    from moldau.schemas.model import Field
    from moldau.schemas.registry import SchemaRegistry


# Pages wait for what is asked here, so that nothing takes longer than ten seconds. Every client
# gets the options that the console was given, as far as it knows them: a cluster with security is
# reached by handing them in.
#
# A shell; used by the tasks of one loop.


CLIENT_ID = "moldau-console"
TIMEOUT_MS = 10_000
_CONNECT_MS = 3_000
_TAIL_FETCH_BYTES = 256 * 1024


class Cluster:
    """Use `open` inside the loop that the console runs on, and `close` at its end."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self.settings = settings
        self._admin: AsyncAdmin | None = None
        self._producer: AsyncProducer | None = None
        self._producer_lock = asyncio.Lock()
        self._is_closed = False
        self.decoder = RecordDecoder(settings.registry, SystemClock())

    @property
    def admin(self) -> AsyncAdmin:
        self._require_open()
        if self._admin is None:
            options = self._options(AdminOptions, {"default_api_timeout_ms": TIMEOUT_MS})
            self._admin = AsyncAdmin(self.settings.bootstrap, **options)
        return self._admin

    def tailing_consumer(self, *, read_committed: bool) -> AsyncConsumer:
        """Without a group: nobody's committed offsets change because somebody looks."""
        self._require_open()
        own: dict[str, object] = {
            "auto_offset_reset": "latest",
            "enable_auto_commit": False,
            "max_partition_fetch_bytes": _TAIL_FETCH_BYTES,
            "isolation_level": _isolation(read_committed),
        }
        return AsyncConsumer(self.settings.bootstrap, **self._options(ConsumerOptions, own))

    def simple_consumer(self, address: Address, *, read_committed: bool) -> AsyncSimpleConsumer:
        self._require_open()
        own: dict[str, object] = {"isolation_level": _isolation(read_committed)}
        return AsyncSimpleConsumer(str(address), **self._options(ConsumerOptions, own))

    async def producer(self) -> AsyncProducer:
        """One for all sessions, made when the first record is sent."""
        async with self._producer_lock:
            self._require_open()
            if self._producer is None:
                own: dict[str, object] = {
                    "linger_ms": 0,
                    "delivery_timeout_ms": TIMEOUT_MS,
                    "max_block_ms": TIMEOUT_MS,
                }
                options = self._options(ProducerOptions, own)
                self._producer = AsyncProducer(self.settings.bootstrap, **options)
            return self._producer

    def transactional_producer(self, transactional_id: str) -> AsyncProducer:
        """Fences whoever else has this id."""
        self._require_open()
        own: dict[str, object] = {
            "transactional_id": transactional_id,
            "linger_ms": 0,
            "delivery_timeout_ms": TIMEOUT_MS,
            "max_block_ms": TIMEOUT_MS,
        }
        return AsyncProducer(self.settings.bootstrap, **self._options(ProducerOptions, own))

    def require_writable(self) -> None:
        """Everything that changes something asks here first, whatever a page shows."""
        if self.settings.is_read_only:
            raise ConfigurationError("this console is read-only; nothing was changed")

    def _require_open(self) -> None:
        """A tab of a session that has ended may still ask for something."""
        if self._is_closed:
            raise ConfigurationError("the session has ended; log in again")

    async def close(self) -> None:
        self._is_closed = True
        if self._producer is not None:
            await self._producer.close()
        if self._admin is not None:
            await self._admin.close()

    def _options(self, kind: type[ClientOptions], own: Mapping[str, object]) -> dict[str, Any]:
        """The console's own options, beneath those that it was given and this client knows.

        `Any`: a client checks its options by itself, and its other arguments are none of them.
        """
        known = {one.attribute for one in kind.declarations().values()}
        given = {
            name.replace(".", "_"): value for name, value in self.settings.client_options.items()
        }
        return {
            "client_id": CLIENT_ID,
            "request_timeout_ms": TIMEOUT_MS,
            "socket_connection_setup_timeout_ms": _CONNECT_MS,
            **own,
            **{name: value for name, value in given.items() if name in known},
        }


def _isolation(read_committed: bool) -> str:
    return "read_committed" if read_committed else "read_uncommitted"


# Keys and values by the schemas that they name, for people.
#
# A schema is looked up once, in a thread. While a registry does not answer, nobody waits for it:
# records are shown as they are, and it is asked again after a while.


_REST_SECONDS = 15.0
_MAGIC = 0
"""The first byte of what names its schema; GUIDs stand in headers instead."""


class RecordDecoder:
    """`problem` says why values are shown as bytes, while the registry is away."""

    def __init__(self, registry: SchemaRegistry | None, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._resting_until = 0.0
        self.problem = ""

    async def keep_all(self, records: Sequence[ConsumerRecord]) -> list[KeptRecord]:
        """As far as a session keeps them, decoded where they can be."""
        if self._registry is None or not records:
            return [keep(one) for one in records]
        return await asyncio.to_thread(self._decode_all, self._registry, records)

    def _decode_all(
        self, registry: SchemaRegistry, records: Sequence[ConsumerRecord]
    ) -> list[KeptRecord]:
        return [
            keep(
                one,
                key=self._decode(registry, one, one.key, "key"),
                value=self._decode(registry, one, one.value, "value"),
            )
            for one in records
        ]

    def _decode(
        self, registry: SchemaRegistry, record: ConsumerRecord, data: bytes | None, field: Field
    ) -> SchemaReading | None:
        from moldau.schemas.showing import decode_any

        if data is None or not (data[:1] == bytes((_MAGIC,)) or record.headers):
            return None
        if self._clock.monotonic() < self._resting_until:
            return None
        try:
            found = decode_any(registry, bytes(data), record.headers, field)
            text = json.dumps(found.value, indent=2, ensure_ascii=False)
        except RegistryUnreachableError as error:
            self._resting_until = self._clock.monotonic() + _REST_SECONDS
            self.problem = str(error)
            return None
        except (MoldauError, ValueError, TypeError, RecursionError) as error:
            return SchemaReading(failure=str(error)) if data[:1] == bytes((_MAGIC,)) else None
        self.problem = ""
        schema = f"schema {found.id}" if found.id is not None else f"schema {found.guid}"
        kind = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}.get(
            str(found.type), str(found.type)
        )
        name = f"{found.name}, " if found.name else ""
        return SchemaReading(text=text, schema=f"{kind}: {name}{schema}")


EXPECTED = (MoldauError, TimeoutError, OSError)
"""What a cluster, a network or an answer may do to a request. Anything else is a bug."""


def failure_text(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the cluster did not answer in time"
    return str(error) or type(error).__name__


# Brokers as rows, and what keeps the cluster together


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRow:
    """A broker that is there, or one that partitions still name."""

    id: int
    address: str | None  # None: it is away
    rack: str | None
    is_controller: bool
    leads: int
    replicas: int
    in_sync: int
    size_bytes: int | None
    free_bytes: int | None  # of the fullest of its disks
    total_bytes: int | None
    failed_dirs: tuple[str, ...] = ()


Disks = Mapping[int, Sequence[LogDirDescription | KafkaError]]


def broker_rows(
    cluster: ClusterDescription, topics: Collection[TopicMetadata], disks: Disks
) -> list[BrokerRow]:
    counts = count_replicas(topics)
    alive = {broker.id: broker for broker in cluster.brokers}
    rows = []
    for broker_id in sorted({*alive, *counts.replicas}):
        broker = alive.get(broker_id)
        folders = disks.get(broker_id, ())
        read = [one for one in folders if isinstance(one, LogDirDescription)]
        fullest = min(
            (one for one in read if one.total_bytes > 0),
            key=lambda one: one.usable_bytes / one.total_bytes,
            default=None,
        )
        rows.append(
            BrokerRow(
                id=broker_id,
                address=None if broker is None else str(broker.address),
                rack=None if broker is None else broker.rack,
                is_controller=broker_id == cluster.controller_id,
                leads=counts.leads[broker_id],
                replicas=counts.replicas[broker_id],
                in_sync=counts.in_sync[broker_id],
                size_bytes=_sum_sizes(read) if read else None,
                free_bytes=None if fullest is None else fullest.usable_bytes,
                total_bytes=None if fullest is None else fullest.total_bytes,
                failed_dirs=tuple(str(one) for one in folders if isinstance(one, KafkaError)),
            )
        )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirRow:
    """A folder of a broker with what is in it; `failure` stands where it is offline."""

    path: str
    replicas: int | None = None
    size_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    moving: int = 0  # copies that will take the place of a replica in another folder
    failure: str = ""


def log_dir_rows(folders: Collection[LogDirDescription | KafkaError]) -> list[LogDirRow]:
    rows = []
    for one in folders:
        if isinstance(one, KafkaError):
            rows.append(LogDirRow(path="a folder that is offline", failure=str(one)))
            continue
        is_measured = one.total_bytes > 0  # older brokers do not say
        rows.append(
            LogDirRow(
                path=one.path,
                replicas=len(one.replicas),
                size_bytes=_sum_sizes([one]),
                free_bytes=one.usable_bytes if is_measured else None,
                total_bytes=one.total_bytes if is_measured else None,
                moving=sum(replica.is_future for replica in one.replicas),
            )
        )
    return sorted(rows, key=lambda row: row.path)


def _sum_sizes(folders: Collection[LogDirDescription]) -> int:
    return sum(replica.size_bytes for folder in folders for replica in folder.replicas)


def coordination_text(settings: Mapping[str, str | None]) -> str:
    """What a broker's own settings say about where the cluster keeps its state."""
    zookeeper = settings.get("zookeeper.connect")
    if zookeeper:
        return f"ZooKeeper at {zookeeper}"
    if settings.get("process.roles"):
        voters = settings.get("controller.quorum.voters") or settings.get(
            "controller.quorum.bootstrap.servers"
        )
        return f"KRaft quorum of {voters}" if voters else "KRaft quorum"
    if settings.get("coordination.socket"):
        return "a store on this machine, shared by its brokers"
    return "a store inside the broker"
