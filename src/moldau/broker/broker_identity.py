"""Who this broker is: which cluster it belongs to, and its id there.

The coordination store, the data folders and the options each may know it already, and have to
agree. A store that is new takes over what is in the folders (`adoption`), unless that would hide
what another store knows (`store_directory`). A shell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from moldau.broker.adoption import adopt_topics, check_adoption
from moldau.broker.store_directory import check_store_directory
from moldau.cluster.acl_nodes import ACL_PATHS
from moldau.cluster.broker_registration import generate_broker_id
from moldau.cluster.cluster_identity import ensure_layout
from moldau.cluster.layout import CLUSTER_ID
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import Coordination
from moldau.model import BrokerId
from moldau.storage.log_store import LogStore

_FIRST_BROKER_ID = BrokerId(1)
"""A broker alone that was given no id."""


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
    cluster_id = await ensure_layout(
        coordination,
        log_store.identities.cluster_id,
        make_uuid,
        more_paths,
        may_be_new=is_new,
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
