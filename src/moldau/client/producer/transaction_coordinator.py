"""Asks coordinators for a producer: who it is, and what becomes of its transactions. A shell.

One request at a time, once; what an answer means, and when to ask again, is decided by
`rules.transaction_manager`. A coordinator is looked for when it is needed, and again when it was
not the right one, or did not answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from kio.schema.errors import ErrorCode

from moldau.client.cluster import GROUP_KEY, TRANSACTION_KEY, ClusterClient, find_coordinator_once
from moldau.client.connections import BrokerConnection
from moldau.client.producer.rules.record_accumulator import (
    AskProducerId,
    AskToAddOffsets,
    AskToAddPartitions,
    AskToCommitOffsets,
    AskToEnd,
    ProducerIdentity,
    TransactionRequest,
)
from moldau.client.rules.broker_errors import error_for
from moldau.client.rules.cluster_metadata import Broker
from moldau.errors import (
    ClientError,
    KafkaError,
    TransactionalIdAuthorizationError,
    UnsupportedByBrokerError,
)
from moldau.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from moldau.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

if TYPE_CHECKING:
    from kio.schema.add_offsets_to_txn.v3.response import AddOffsetsToTxnResponse
    from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse
    from kio.schema.end_txn.v5.response import EndTxnResponse
    from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
    from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse

_DROPPABLE = frozenset({"producer_id", "producer_epoch", "enable2_pc", "keep_prepared_txn"})
_ONE_PHASE = {"enable2_pc": False, "keep_prepared_txn": False}
_OFFSETS_DROPPABLE = frozenset(
    {"generation_id", "member_id", "group_instance_id", "committed_leader_epoch"}
)
_AS_LONG_AS_IT_TAKES = float("inf")
_TRANSACTION_VERSION = "transaction.version"
LAST_PRODUCE_BEFORE_VERSION_2 = 11
_FIRST_WITH_TWO_PHASES = 6
_ALLOW_TWO_PHASES = "set transaction.two.phase.commit.enable=true on every broker"
_LAST_END_BEFORE_VERSION_2 = 4
_LAST_OFFSETS_BEFORE_VERSION_2 = 4


class Granted(NamedTuple):
    """A coordinator did what it was asked for; the end of a transaction may bring an identity."""

    identity: ProducerIdentity | None = None
    is_version_2: bool = False


class TransactionCoordinatorClient:
    """The coordinators of one producer with a transactional id."""

    def __init__(
        self, client: ClusterClient, transaction_timeout_ms: int, *, has_two_phases: bool = False
    ) -> None:
        self._client = client
        self._has_two_phases = has_two_phases
        self._transaction_timeout_ms = transaction_timeout_ms
        self._known: dict[tuple[int, str], Broker] = {}
        self._is_version_2 = False

    async def send_request(self, request: TransactionRequest) -> Granted:
        """Raises KafkaError or ClientError."""
        match request:
            case AskProducerId(name):
                return await self._within(
                    TRANSACTION_KEY, name, lambda link: self._initialize(link, request)
                )
            case AskToAddPartitions(name):
                return await self._within(
                    TRANSACTION_KEY, name, lambda link: self._add_partitions(link, request)
                )
            case AskToAddOffsets(name):
                return await self._within(
                    TRANSACTION_KEY, name, lambda link: self._add_offsets(link, request)
                )
            case AskToCommitOffsets():
                group_id = request.offsets.group.group_id
                return await self._within(
                    GROUP_KEY, group_id, lambda link: self._commit_offsets(link, request)
                )
            case AskToEnd(name):
                return await self._within(
                    TRANSACTION_KEY, name, lambda link: self._end(link, request)
                )

    async def _within(
        self,
        key_type: int,
        name: str,
        send_request: Callable[[BrokerConnection], Awaitable[Granted]],
    ) -> Granted:
        """Ask the coordinator of this name; it is forgotten if it fails, for whatever reason."""
        try:
            broker = self._known.get((key_type, name))
            if broker is None:
                broker = await find_coordinator_once(self._client, name, key_type)
                self._known[key_type, name] = broker
            return await send_request(await self._client.connect_to_broker(broker.id))
        except (KafkaError, ClientError):
            self._known.pop((key_type, name), None)
            raise

    async def _initialize(self, link: BrokerConnection, request: AskProducerId) -> Granted:
        identity = request.identity or ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        values = {
            "transactional_id": request.transactional_id,
            "transaction_timeout": self._transaction_timeout_ms,
            "producer_id": identity.id,
            "producer_epoch": identity.epoch,
            **_ONE_PHASE,
            "enable2_pc": self._has_two_phases,
        }
        self._is_version_2 = _speaks_version_2(link)
        if self._has_two_phases:
            self._require_two_phases(link)
        given = cast(
            "InitProducerIdResponse", await link.call(INIT_PRODUCER_ID, values, _DROPPABLE)
        )
        refused = ErrorCode.transactional_id_authorization_failed
        if self._has_two_phases and given.error_code is refused:
            raise TransactionalIdAuthorizationError(
                f"the brokers let the transactional id {request.transactional_id!r} have no "
                f"two-phase commit: {_ALLOW_TWO_PHASES}, and see that the user may use this id"
            )
        _require_granted(given.error_code, f"transactional id {request.transactional_id!r}")
        return Granted(
            ProducerIdentity(given.producer_id, given.producer_epoch), self._is_version_2
        )

    def _require_two_phases(self, link: BrokerConnection) -> None:
        """Raise where a transaction could not be completed by somebody else."""
        if not self._is_version_2 or link.choose_version(INIT_PRODUCER_ID) < _FIRST_WITH_TWO_PHASES:
            raise UnsupportedByBrokerError(
                "the broker has no two-phase commit (KIP-939: InitProducerId 6, and "
                f"transaction.version 2): use brokers that have it, and {_ALLOW_TWO_PHASES}"
            )

    async def _add_partitions(self, link: BrokerConnection, request: AskToAddPartitions) -> Granted:
        topics = [
            {"name": topic, "partitions": numbers}
            for topic, numbers in _by_topic(request.partitions).items()
        ]
        values = {
            "v3_and_below_transactional_id": request.transactional_id,
            "v3_and_below_producer_id": request.identity.id,
            "v3_and_below_producer_epoch": request.identity.epoch,
            "v3_and_below_topics": topics,
        }
        answer = cast("AddPartitionsToTxnResponse", await link.call(ADD_PARTITIONS_TO_TXN, values))
        codes = {
            TopicPartition(topic.name, row.partition_index): row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }
        _require_all_granted(codes)
        return Granted()

    async def _add_offsets(self, link: BrokerConnection, request: AskToAddOffsets) -> Granted:
        values = {**_identity_values(request), "group_id": request.group_id}
        answer = cast("AddOffsetsToTxnResponse", await link.call(ADD_OFFSETS_TO_TXN, values))
        _require_granted(answer.error_code, f"offsets of group {request.group_id!r}")
        return Granted()

    async def _commit_offsets(self, link: BrokerConnection, request: AskToCommitOffsets) -> Granted:
        group, offsets = request.offsets
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offsets[TopicPartition(topic, number)].offset,
                        "committed_leader_epoch": offsets[
                            TopicPartition(topic, number)
                        ].leader_epoch,
                        "committed_metadata": offsets[TopicPartition(topic, number)].metadata,
                    }
                    for number in numbers
                ],
            }
            for topic, numbers in _by_topic(offsets).items()
        ]
        values = {
            **_identity_values(request),
            "group_id": group.group_id,
            "generation_id": group.generation_id,
            "member_id": group.member_id,
            "group_instance_id": group.instance_id,
            "topics": topics,
        }
        most = None if self._is_version_2 else _LAST_OFFSETS_BEFORE_VERSION_2
        version = link.choose_version(TXN_OFFSET_COMMIT, at_most=most)
        answer = cast(
            "TxnOffsetCommitResponse",
            await link.call(TXN_OFFSET_COMMIT, values, _OFFSETS_DROPPABLE, version=version),
        )
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
        }
        _require_all_granted(codes)
        return Granted()

    async def _end(self, link: BrokerConnection, request: AskToEnd) -> Granted:
        values = {**_identity_values(request), "committed": request.is_commit}
        most = None if self._is_version_2 else _LAST_END_BEFORE_VERSION_2
        version = link.choose_version(END_TXN, at_most=most)
        answer = cast("EndTxnResponse", await link.call(END_TXN, values, version=version))
        _require_granted(answer.error_code, f"transactional id {request.transactional_id!r}")
        producer_id = getattr(answer, "producer_id", NO_PRODUCER_ID)  # from version 5 on
        if producer_id == NO_PRODUCER_ID:
            return Granted()
        return Granted(ProducerIdentity(producer_id, answer.producer_epoch))


def _identity_values(request: AskToAddOffsets | AskToCommitOffsets | AskToEnd) -> dict[str, object]:
    return {
        "transactional_id": request.transactional_id,
        "producer_id": request.identity.id,
        "producer_epoch": request.identity.epoch,
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        found[topic].append(number)
    return found


def _speaks_version_2(link: BrokerConnection) -> bool:
    """Whether the cluster has finalized it, and this broker and this client have its requests."""
    if link.features.get(_TRANSACTION_VERSION, 0) < 2:
        return False
    produce, end = link.versions.get(PRODUCE.key), link.versions.get(END_TXN.key)
    return (
        produce is not None
        and produce.last > LAST_PRODUCE_BEFORE_VERSION_2
        and end is not None
        and end.last > _LAST_END_BEFORE_VERSION_2
    )


def _require_granted(code: ErrorCode, subject: str) -> None:
    if code is not ErrorCode.none:
        raise error_for(code, None, subject)


def _require_all_granted(codes: Mapping[TopicPartition, ErrorCode]) -> None:
    """Raise the first error that says something: others only stand in its shadow."""
    worst = sorted(
        (code is ErrorCode.operation_not_attempted, str(partition), code)
        for partition, code in codes.items()
        if code is not ErrorCode.none
    )
    if worst:
        _, partition, code = worst[0]
        raise error_for(code, None, partition)


# Producers without transactions


async def request_producer_id(client: ClusterClient) -> ProducerIdentity:
    """A producer id (InitProducerId), for as long as it takes.

    Raises only what does not pass by itself: no permission, a broker that is too old.
    """

    async def send_request() -> ProducerIdentity:
        return await _request_producer_id_once(client)

    return await client.retry(
        send_request, timeout_seconds=_AS_LONG_AS_IT_TAKES, wait_for_cluster=True
    )


async def _request_producer_id_once(client: ClusterClient) -> ProducerIdentity:
    connection = await client.pool.to_any()
    values = {
        "transactional_id": None,
        "transaction_timeout": 0,
        "producer_id": NO_PRODUCER_ID,
        "producer_epoch": NO_PRODUCER_EPOCH,
        **_ONE_PHASE,
    }
    try:
        answer = await connection.call(INIT_PRODUCER_ID, values, _DROPPABLE)
    except UnsupportedByBrokerError as error:
        raise UnsupportedByBrokerError(
            f"{error}; a producer without idempotence (enable_idempotence=False) needs none"
        ) from None
    given = cast("InitProducerIdResponse", answer)
    _require_granted(given.error_code, "producer id")
    return ProducerIdentity(given.producer_id, given.producer_epoch)
