"""Puts the parts together that control the cluster from here. Part of the composition root."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from moldau.broker.auto_topic_creation import AutoTopicCreation
from moldau.broker.dynamic_config import StoredPasswords
from moldau.broker.inter_broker import BrokerConnections, send_request
from moldau.broker.ports import Ports
from moldau.cluster.broker_registration import new_topic_id
from moldau.cluster.cluster_admin import ClusterAdmin
from moldau.cluster.config_writer import BrokerConfigRules, ConfigRules
from moldau.cluster.controller import Controller, ControllerSettings
from moldau.cluster.controller_election import ControllerElection
from moldau.cluster.elections import Answers, Questions
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.leader_election import LogEnd, RecoveryStrategy
from moldau.cluster.rules.metadata_image import TopicState
from moldau.cluster.rules.topic_creation import TopicDefaults
from moldau.cluster.topic_deletion import TopicDeletion
from moldau.config import describe
from moldau.config.broker_options import BrokerOptions, CurrentBrokerOptions
from moldau.config.group_options import GroupConfigOptions
from moldau.config.topic_options import TopicOptions
from moldau.coordination.port import Coordination
from moldau.errors import ClientError, ErrorCode, InvalidConfigError
from moldau.model import LATEST_TIMESTAMP, BrokerId, TopicPartition
from moldau.net.peer import Peer
from moldau.wire.apis import LIST_OFFSETS

if TYPE_CHECKING:
    from kio.schema.list_offsets.v9 import ListOffsetsResponse

_log = logging.getLogger("moldau.broker")
LIST_OFFSETS_VERSION: Final = 9
ANY_REPLICA: Final = -2
NO_REPLICA: Final = -1
"""Asks as consumers do: the leader answers with its high watermark."""
PARTITIONS_AT_ONCE: Final = 1000  # partitions in one request
LOG_ENDS_TIMEOUT_SECONDS: Final = 2.0
"""So long is an answer waited for; who is slower is not elected this time."""


class ControlPlane(NamedTuple):
    """The parts that others talk to. The controller has still to be started and run."""

    controller: Controller
    admin: ClusterAdmin
    topic_maker: AutoTopicCreation
    to_controller: Peer  # to be closed at the end


def connect_control_plane(
    ports: Ports,
    connections: BrokerConnections,
    *,
    current: CurrentBrokerOptions,
    secrets: StoredPasswords,
    broker_id: BrokerId,
    coordination: Coordination,
    publisher: MetadataPublisher,
) -> ControlPlane:
    make_topic_id = partial(new_topic_id, partial(random_uuid, ports.random))
    controllership = ControllerElection(coordination, ports.clock, publisher, broker_id)
    deletion = TopicDeletion(coordination, publisher)

    controller = Controller(
        coordination=coordination,
        publisher=publisher,
        controllership=controllership,
        min_in_sync_of=lambda topic: min_in_sync_of(topic, current.options),
        strategy_of=lambda topic: recovery_strategy_of(topic, current.options),
        ask_log_ends=LogEndRequests(connections.connect, f"broker-{broker_id}").ask,
        deletion=deletion,
        settings=lambda: _controller_settings(current.options),
        make_topic_id=make_topic_id,
    )
    admin = ClusterAdmin(
        coordination=coordination,
        publisher=publisher,
        controllership=controllership,
        elections=controller.elections,
        reassignments=controller.reassignments,
        deletion=deletion,
        defaults=lambda: _topic_defaults(current.options),
        topic_config_rules=_topic_config_rules(current),
        broker_config_rules=_broker_config_rules(current, secrets),
        group_config_rules=_group_config_rules(current),
        choose=ports.random.randrange,
        make_topic_id=make_topic_id,
    )
    peer = connections.connect_to_controller()
    return ControlPlane(
        controller,
        admin,
        AutoTopicCreation(
            admin=admin,
            controllership=controllership,
            publisher=publisher,
            controller=peer,
            clock=ports.clock,
            client_id=f"broker-{broker_id}",
        ),
        peer,
    )


def random_uuid(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128), version=4)


def _topic_defaults(options: BrokerOptions) -> TopicDefaults:
    return TopicDefaults(
        partition_count=options.num_partitions,
        replication_factor=options.default_replication_factor,
    )


def _controller_settings(options: BrokerOptions) -> ControllerSettings:
    return ControllerSettings(
        deletes_topics=options.delete_topic_enable,
        rebalances=options.auto_leader_rebalance_enable,
        rebalance_interval_seconds=options.leader_imbalance_check_interval_seconds,
        accepted_imbalance_percentage=options.leader_imbalance_per_broker_percentage,
    )


# `cluster` stores configs and `config` knows what they mean; here the two are introduced.


def _topic_config_rules(current: CurrentBrokerOptions) -> ConfigRules:
    return ConfigRules(
        check=lambda configs: TopicOptions.check_all(configs, current.options),
        find_list_default=lambda name: describe.find_list(
            name, describe.describe_topic({}, current.options)
        ),
    )


def _group_config_rules(current: CurrentBrokerOptions) -> ConfigRules:
    return ConfigRules(
        check=lambda configs: GroupConfigOptions.check_all(configs, current.options),
        find_list_default=lambda _: None,  # a group has no lists
    )


def _broker_config_rules(
    current: CurrentBrokerOptions, secrets: StoredPasswords
) -> BrokerConfigRules:
    def rules_for(broker_id: BrokerId | None) -> ConfigRules:
        check = (
            describe.check_default_broker_settings
            if broker_id is None
            else describe.check_broker_settings
        )
        return ConfigRules(
            check=lambda configs: check(secrets.require(configs), current.options),
            find_list_default=lambda name: describe.find_list(
                name, describe.describe_broker(current.options)
            ),
            protect=secrets.protect,
        )

    return rules_for


def min_in_sync_of(topic: TopicState, options: BrokerOptions) -> int:
    """`min.insync.replicas`; the brokers' own where a topic's options make no sense."""
    try:
        return TopicOptions.resolve(topic.configs, options).min_insync_replicas
    except InvalidConfigError:
        return options.min_insync_replicas


def recovery_strategy_of(topic: TopicState, options: BrokerOptions) -> RecoveryStrategy:
    """`unclean.recovery.strategy` where it is set; else what the older option asks for.

    Where a topic's options make no sense nothing is given up.
    """
    try:
        resolved = TopicOptions.resolve(topic.configs, options)
    except InvalidConfigError:
        return RecoveryStrategy.NONE
    strategy = resolved.unclean_recovery_strategy
    if strategy is not None:
        return RecoveryStrategy(strategy)
    if resolved.unclean_leader_election_enable:
        return RecoveryStrategy.AGGRESSIVE
    return RecoveryStrategy.BALANCED


# `transaction.version` (KIP-890): 0 and 1 are told apart by the log of transactions only; under 2
# the end of a transaction raises its producer's epoch, and leaders of partitions add them by
# themselves. `group.version` (KIP-848): with 1, groups of the consumer protocol are served.
# `share.version` (KIP-932): with 1, share groups are. `streams.version` (KIP-1071): with 1, streams
# groups are. A rule.


class Feature(NamedTuple):
    """What this broker can do."""

    name: str
    first: int
    last: int


TRANSACTION_VERSION: Final = Feature("transaction.version", 0, 2)
GROUP_VERSION: Final = Feature("group.version", 0, 1)
SHARE_VERSION: Final = Feature("share.version", 0, 1)
STREAMS_VERSION: Final = Feature("streams.version", 0, 1)
SUPPORTED_FEATURES: Final = (GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION, TRANSACTION_VERSION)
"""Each is in force at its last level."""


class UpdateFault(NamedTuple):
    """Why a feature does not get the level that somebody asks for."""

    code: ErrorCode
    message: str


def find_update_fault(name: str, level: int) -> UpdateFault | None:
    """None when the level is in force already."""
    feature = next((one for one in SUPPORTED_FEATURES if one.name == name), None)
    if feature is None:
        known = ", ".join(one.name for one in SUPPORTED_FEATURES)
        return UpdateFault(
            ErrorCode.invalid_update_version,
            f"there is no feature {name!r} here; there are {known}",
        )
    if not feature.first <= level <= feature.last:
        return UpdateFault(
            ErrorCode.invalid_update_version,
            f"{name} has the levels {feature.first} to {feature.last}, and not {level}",
        )
    if level != feature.last:
        return UpdateFault(
            ErrorCode.feature_update_failed,
            f"{name} is at {feature.last}, the level of the brokers' release, and cannot be "
            f"changed to {level}",
        )
    return None


class LogEndRequests:
    """Asks brokers for the ends of their logs, which an unclean recovery compares (ELR-4).

    By ListOffsets of the latest offset with replica id -2, which any replica answers for its own
    log (`handlers.list_offsets`). Kafka's GetReplicaLogInfo asks the same; not every version of the
    protocol has it. `connect` makes a connection, which is closed when the broker has answered.
    """

    def __init__(
        self, connect: Callable[[BrokerId], Peer], client_id: str, *, replica_id: int = ANY_REPLICA
    ) -> None:
        self._connect = connect
        self._client_id = client_id
        self._replica_id = replica_id

    async def ask(self, questions: Questions) -> Answers:
        """The ends that were told in time."""
        brokers = sorted(questions)
        told = await asyncio.gather(*(self._ask(b, questions[b]) for b in brokers))
        answers: dict[TopicPartition, dict[BrokerId, LogEnd]] = {}
        for broker, ends in zip(brokers, told, strict=True):
            for key, end in ends.items():
                answers.setdefault(key, {})[broker] = end
        return answers

    async def _ask(
        self, broker: BrokerId, wanted: Collection[TopicPartition]
    ) -> dict[TopicPartition, LogEnd]:
        peer = self._connect(broker)
        ends: dict[TopicPartition, LogEnd] = {}
        try:
            for some in _parts_of(sorted(wanted)):
                response: ListOffsetsResponse = await send_request(
                    peer,
                    LIST_OFFSETS,
                    LIST_OFFSETS_VERSION,
                    _values_of(some, self._replica_id),
                    client_id=self._client_id,
                    timeout_seconds=LOG_ENDS_TIMEOUT_SECONDS,
                )
                ends.update(_ends_of(response, broker))
        except ClientError as error:
            _log.info("broker %d does not tell the ends of its logs: %s", broker, error)
        finally:
            await peer.close()
        return ends


def _parts_of(wanted: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(wanted), PARTITIONS_AT_ONCE):
        yield wanted[start : start + PARTITIONS_AT_ONCE]


def _values_of(wanted: Sequence[TopicPartition], replica_id: int) -> dict[str, object]:
    topics: dict[str, list[object]] = {}
    for key in wanted:
        row = {
            "partition_index": key.partition,
            "current_leader_epoch": -1,
            "timestamp": LATEST_TIMESTAMP,
        }
        topics.setdefault(key.topic, []).append(row)
    return {
        "replica_id": replica_id,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
    }


def _ends_of(
    response: ListOffsetsResponse, broker: BrokerId
) -> Iterator[tuple[TopicPartition, LogEnd]]:
    for topic in response.topics:
        for row in topic.partitions:
            key = TopicPartition(topic.name, row.partition_index)
            if row.error_code is ErrorCode.none:
                yield key, LogEnd(row.leader_epoch, row.offset)
            else:
                _log.info("broker %d has no log of %s to lead: %s", broker, key, row.error_code)
