"""Puts the parts together that control the cluster from here. Part of the composition root."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple
from uuid import UUID

from moldau.broker.election_options import min_in_sync_of, recovery_strategy_of
from moldau.broker.log_end_questions import LogEndQuestions
from moldau.broker.ports import Ports
from moldau.broker.replication import find_address
from moldau.broker.stored_secrets import StoredSecrets
from moldau.broker.topic_maker import TopicMaker
from moldau.cluster.cluster_admin import ClusterAdmin
from moldau.cluster.cluster_identity import new_topic_id
from moldau.cluster.config_writer import BrokerConfigRules, ConfigRules
from moldau.cluster.controller import Controller, ControllerSettings
from moldau.cluster.controllership import Controllership
from moldau.cluster.leadership_admin import LeadershipAdmin
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.topic_creation import TopicDefaults
from moldau.cluster.topic_deletion import TopicDeletion
from moldau.config import describe
from moldau.config.broker_options import BrokerOptions
from moldau.config.current import CurrentBrokerOptions
from moldau.coordination.port import Coordination
from moldau.model import BrokerId
from moldau.net.peer import Peer, PeerAddress


class ControlPlane(NamedTuple):
    """The parts that others talk to. The controller has still to be started and run."""

    controller: Controller
    admin: ClusterAdmin
    leadership: LeadershipAdmin
    topic_maker: TopicMaker
    to_controller: Peer  # to be closed at the end


def connect_control_plane(
    ports: Ports,
    *,
    current: CurrentBrokerOptions,
    secrets: StoredSecrets,
    broker_id: BrokerId,
    coordination: Coordination,
    publisher: MetadataPublisher,
) -> ControlPlane:
    make_topic_id = partial(new_topic_id, partial(random_uuid, ports.random))
    controllership = Controllership(coordination, ports.clock, publisher, broker_id)
    deletion = TopicDeletion(coordination, publisher)

    def connect(other: BrokerId) -> Peer:
        def find() -> PeerAddress | None:
            return find_address(publisher.image.brokers.get(other), current.options)

        return Peer(ports.network, ports.clock, find, name=f"broker {other}")

    controller = Controller(
        coordination=coordination,
        publisher=publisher,
        controllership=controllership,
        min_in_sync_of=lambda topic: min_in_sync_of(topic, current.options),
        strategy_of=lambda topic: recovery_strategy_of(topic, current.options),
        ask_log_ends=LogEndQuestions(connect, f"broker-{broker_id}").ask,
        deletion=deletion,
        settings=lambda: _controller_settings(current.options),
        make_topic_id=make_topic_id,
    )
    admin = ClusterAdmin(
        coordination=coordination,
        publisher=publisher,
        controllership=controllership,
        deletion=deletion,
        defaults=lambda: _topic_defaults(current.options),
        topic_config_rules=_topic_config_rules(current),
        broker_config_rules=_broker_config_rules(current, secrets),
        group_config_rules=_group_config_rules(current),
        choose=ports.random.randrange,
        make_topic_id=make_topic_id,
    )
    find_controller = _address_of_controller(publisher, lambda: current.options)
    peer = Peer(ports.network, ports.clock, find_controller, name="the controller")
    return ControlPlane(
        controller,
        admin,
        LeadershipAdmin(controllership, publisher, controller.elections, controller.reassignments),
        TopicMaker(
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


def _address_of_controller(
    publisher: MetadataPublisher, options: Callable[[], BrokerOptions]
) -> Callable[[], PeerAddress | None]:
    def find() -> PeerAddress | None:
        image = publisher.image
        return find_address(image.brokers.get(image.controller_id), options())

    return find


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
        check=lambda configs: describe.check_topic_settings(configs, current.options),
        find_list_default=lambda name: describe.find_topic_list(name, current.options),
    )


def _group_config_rules(current: CurrentBrokerOptions) -> ConfigRules:
    return ConfigRules(
        check=lambda configs: describe.check_group_settings(configs, current.options),
        find_list_default=lambda _: None,  # a group has no lists
    )


def _broker_config_rules(
    current: CurrentBrokerOptions, secrets: StoredSecrets
) -> BrokerConfigRules:
    def rules_for(broker_id: BrokerId | None) -> ConfigRules:
        check = (
            describe.check_default_broker_settings
            if broker_id is None
            else describe.check_broker_settings
        )
        return ConfigRules(
            check=lambda configs: check(secrets.require(configs), current.options),
            find_list_default=lambda name: describe.find_broker_list(name, current.options),
            protect=secrets.protect,
        )

    return rules_for
