"""Who this broker is: which cluster it belongs to, and its id there.

The coordination store, the data folders and the options each may know it already, and have to
agree. A store that is new takes over what is in the folders (`adoption`), unless that would hide
what another store knows (`missing_log_dirs`). A shell.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from moldau.broker.missing_log_dirs import check_store_directory
from moldau.cluster.broker_registration import ensure_znodes, generate_broker_id, new_topic_id
from moldau.cluster.entity_znodes import ACL_PATHS
from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.cluster.rules.topic_creation import MAX_PARTITIONS_PER_CHANGE
from moldau.cluster.topic_operations import create_topic
from moldau.cluster.znodes import CLUSTER_ID
from moldau.config.broker_options import BrokerOptions, find_internal_configs
from moldau.config.topic_options import SUSPENDED, UNKNOWN_TOPIC_SETTINGS
from moldau.coordination.port import Coordination
from moldau.errors import StartupError
from moldau.model import (
    GROUP_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    LeaderEpoch,
    TopicId,
    TopicPartition,
)
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.storage.rules.file_names import partition_folder_name

_FIRST_BROKER_ID = BrokerId(1)
"""A broker alone that was given no id."""

_log = logging.getLogger("moldau.broker")
_MOST_NAMES = 10


class BrokerIdentity(NamedTuple):
    """What all agree on."""

    cluster_id: str
    broker_id: BrokerId


async def establish_identity(
    coordination: Coordination,
    log_store: LogStore,
    options: BrokerOptions,
    make_uuid: Callable[[], UUID],
) -> BrokerIdentity:
    """Find it, or make it. New folders get it when it is known that none is missing."""
    is_new = await coordination.get(CLUSTER_ID) is None
    if is_new:
        check_adoption(log_store.logs, options)
    check_store_directory(log_store, options, is_new=is_new)
    more_paths = ACL_PATHS if options.authorizer_class_name else ()
    cluster_id = await ensure_znodes(
        coordination, log_store.identities.cluster_id, make_uuid, more_paths, may_be_new=is_new
    )
    broker_id = await _choose_broker_id(options, log_store, coordination)
    log_store.identities.check(broker_id, cluster_id)
    if is_new:
        await adopt_topics(coordination, log_store.logs, broker_id, options)
        await log_store.write_identity(broker_id, cluster_id)  # it misses nothing
        for key in tuple(log_store.checkpoints.missed):
            log_store.checkpoints.forget_missed(key)
    return BrokerIdentity(cluster_id, broker_id)


async def _choose_broker_id(
    options: BrokerOptions, log_store: LogStore, coordination: Coordination
) -> BrokerId:
    """The one that was given, else the one of the data folder, else a new one."""
    if options.broker_id >= 0:
        return BrokerId(options.broker_id)
    if log_store.identities.broker_id is not None:
        return log_store.identities.broker_id
    if options.is_alone:
        return _FIRST_BROKER_ID
    return await generate_broker_id(coordination, options.reserved_broker_max_id)


# Serving a folder that was copied from a Kafka broker (L10).
#
# Such a folder has logs but no coordination store, so nothing knows of its topics. When a store is
# new, the topics are registered as the logs say: name and partitions by the folders, the id by
# `partition.metadata`. Their settings are not in the folder, except that Kafka's own topics always
# have the same: every other one is marked, so that nothing in it is deleted or compacted before a
# person has said what it is for (`config.topic_options`). `__cluster_metadata` is no topic and is
# left alone.
#
# A store that is not new knows its topics; `replication.replica_logs` says what becomes of logs
# that it does not know. An empty ZooKeeper is a new store, or one that lost everything: there it
# is done only on request, since each topic would get one replica, the one here.


Logs = Mapping[TopicPartition, Log]


def check_adoption(logs: Logs, options: BrokerOptions) -> None:
    """Refuse a new store where a broker has logs, unless it is its own or somebody asked for it."""
    is_asked = options.is_alone or options.adopt_topics_enable
    if logs and not is_asked:
        names = sorted({key.topic for key in logs})
        connect = options.zookeeper_connect
        store = "coordination store" if connect is None else f"ZooKeeper at {connect}"
        raise StartupError(
            f"the {store} is empty, and the data folder has "
            f"{len(logs)} logs of {len(names)} topics ({_join(names)}). If it lost its "
            "data, restore it from a backup and start again; if the address is wrong, mend "
            "zookeeper.connect. To make a new cluster of what is in this folder, start with "
            "--adopt-topics (adopt.topics.enable=true). Nothing was touched"
        )


async def adopt_topics(
    coordination: Coordination, logs: Logs, broker_id: BrokerId, options: BrokerOptions
) -> None:
    """Register a topic for the logs that were found; partitions that are missing are made."""
    by_topic: dict[str, dict[int, Log]] = {}
    for topic_partition, log in logs.items():
        by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = log
    names_of_ids: dict[TopicId, str] = {}
    for name, found in sorted(by_topic.items(), key=_originals_first):
        topic_id = _topic_id_of(found)
        doubt = _find_doubt(found, names_of_ids.get(topic_id))
        if doubt is not None:
            del by_topic[name]
            _log.error("%s is not served as topic %s: %s", _folders_of(name, found), name, doubt)
            continue
        names_of_ids[topic_id] = name
        configs = find_internal_configs(name, options)
        topic = TopicState(
            name=name,
            topic_id=topic_id,
            partitions=tuple(
                _state_of(found.get(number), broker_id)
                for number in range(_count_partitions(name, found, options))
            ),
            configs=UNKNOWN_TOPIC_SETTINGS if configs is None else configs,
        )
        await coordination.transact(create_topic(topic, None))
        _log.info("topic %s with %d partitions is served from disk", name, len(topic.partitions))
    if by_topic:
        _log.warning(
            "the data folder came without a store: %d logs of %d topics in it are served now (%s)",
            sum(len(found) for found in by_topic.values()),
            len(by_topic),
            _join(sorted(by_topic)),
        )


def warn_of_unconfirmed(image: MetadataImage) -> None:
    """Say, at every start, which topics wait for somebody to say what they are for."""
    names = sorted(t.name for t in image.topics.values() if t.configs.get(SUSPENDED) == "true")
    if names:
        _log.warning(
            "in %d topics nothing is deleted or compacted, since their settings are not known or "
            "not confirmed (%s). Set them, topic by topic: `moldau configs alter --topic NAME "
            "--set cleanup.policy=compact`, or retention.ms=..., or retention.bytes=...; or take "
            "the defaults with `--unset cleanup.suspended`",
            len(names),
            _join(names),
        )


def _join(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


def _originals_first(topic: tuple[str, Mapping[int, Log]]) -> tuple[int, int, str]:
    """Of two with the same id: somebody copies a partition or two, and says more in the name."""
    name, found = topic
    return -len(found), len(name), name


def _find_doubt(found: Collection[int], twin: str | None) -> str | None:
    """Why some folders are most likely no topic, but a copy that somebody has put beside them.

    `clicks-0-20240101` would be partition 20240101 of `clicks-0`, and twenty million others.
    """
    if twin is not None:
        return f"it has the id of topic {twin}, so it is a copy of it"
    if max(found) + 1 - len(found) > MAX_PARTITIONS_PER_CHANGE:
        return f"{max(found) + 1 - len(found)} of its partitions would be missing"
    return None


def _folders_of(name: str, found: Collection[int]) -> str:
    return _join([partition_folder_name(TopicPartition(name, number)) for number in sorted(found)])


def _count_partitions(name: str, found: Collection[int], options: BrokerOptions) -> int:
    """As many as the folders show. Which partition a group or a transaction has depends on the
    number: where some are missing, the last ones may be too, and the options tell."""
    count = max(found) + 1
    if len(found) == count:
        return count
    _log.warning(
        "of topic %s the folder has %d partitions, the highest is %d: the others were on other "
        "brokers, and are empty here",
        name,
        len(found),
        max(found),
    )
    if name == GROUP_OFFSETS_TOPIC:
        return max(count, options.offsets_topic_num_partitions)
    if name == TRANSACTION_STATE_TOPIC:
        return max(count, options.transaction_state_log_num_partitions)
    return count


def _topic_id_of(logs: Mapping[int, Log]) -> TopicId:
    known = next((log.topic_id for log in logs.values() if log.topic_id is not None), None)
    return new_topic_id() if known is None else known


def _state_of(log: Log | None, broker_id: BrokerId) -> PartitionState:
    epoch = None if log is None else log.latest_epoch
    return PartitionState(
        leader=broker_id,
        leader_epoch=LeaderEpoch(0 if epoch is None else epoch),
        isr=(broker_id,),
        replicas=(broker_id,),
    )
