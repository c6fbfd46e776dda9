"""Where the cluster's state is kept, and in which JSON: Kafka's classic znodes.

    /cluster/id                               the cluster's id
    /controller, /controller_epoch            who controls (ephemeral), and the count of them all
    /brokers/ids/N                            a living broker (ephemeral)
    /brokers/registered/N                     what a broker registered last, until UnregisterBroker
    /brokers/seqid                            its version numbers brokers that have no id
    /brokers/log_dirs/N                       the log directories that a broker had last, by id
    /brokers/topics/T                         topic id and replicas of each partition
    /brokers/topics/T/partitions/P/state      leader, leader epoch, in-sync replicas; and where
                                              there are any, eligible and last known leaders
    /config/topics|brokers|groups|…/…         what was set dynamically
    /config/changes/config_change_…           tells brokers which of them changed
    /isr_change_notification/isr_change_…     tells brokers which partitions changed
    /log_dir_event_notification/…             a broker lost a log directory
    /latest_producer_id_block                 the producer ids that were handed out last
    /admin/delete_topics/T                    somebody asks for a deletion, or it is under way
    /admin/reassign_partitions                somebody asks for partitions to be moved
    /admin/preferred_replica_election         somebody asks for preferred leaders

Paths and codecs only: bytes in, values out. Anything that is not what a broker writes raises
`MalformedNodeError` with the path in it. Who reads and writes these nodes: the shells beside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard, cast
from urllib.parse import quote, unquote

from moldau.cluster.rules.metadata_image import (
    NO_TOPIC_ID,
    BranchOrigin,
    BrokerState,
    Endpoint,
    PartitionState,
)
from moldau.errors import MalformedNodeError
from moldau.model import (
    NO_BROKER,
    BrokerId,
    LeaderEpoch,
    TopicId,
    TopicPartition,
    format_uuid,
    parse_uuid,
)

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
REGISTERED_BROKERS = "/brokers/registered"
"""By broker, until UnregisterBroker: one that is in here and not alive is expected back."""
BROKER_LOG_DIRS = "/brokers/log_dirs"
"""By broker: a directory that is in here and not on the broker is missing (DEL-3)."""
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
DELEGATION_TOKENS = "/delegation_token/tokens"
DELETE_TOPICS = "/admin/delete_topics"
DELETED_TOPICS = "/admin/deleted_topics"
"""By id: a broker deletes a log because its topic is in here, not because it is gone (DEL-1)."""
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"

PERSISTENT_PATHS = (
    BROKER_IDS,
    BROKER_SEQUENCE,
    REGISTERED_BROKERS,
    BROKER_LOG_DIRS,
    TOPICS,
    CONFIG_CHANGES,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    IP_CONFIGS,
    DELETE_TOPICS,
    DELETED_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PRODUCER_ID_BLOCK,
    "/consumers",
)
"""What a broker makes sure of when it starts, as Kafka does."""

DEFAULT_BROKER = "<default>"
"""In the place of a broker id: the config of all brokers."""

_ENDPOINT = re.compile(r"([\w.-]+)://\[?([0-9a-zA-Z\-%._:]*)\]?:(\d+)\Z", re.ASCII)


def broker_path(broker_id: BrokerId) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def registered_broker_path(broker_id: BrokerId) -> str:
    return f"{REGISTERED_BROKERS}/{broker_id}"


def broker_log_dirs_path(broker_id: BrokerId) -> str:
    return f"{BROKER_LOG_DIRS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker_id: BrokerId | None) -> str:
    return f"{BROKER_CONFIGS}/{DEFAULT_BROKER if broker_id is None else broker_id}"


def encode_group_name(group_id: str) -> str:
    """A group id as the name of a node: any text may be one, and `/` and `..` name no node.

    Percent-encoded, as Kafka writes the names of users and clients.
    """
    name = quote(group_id, safe="")
    return name.replace(".", "%2E") if name in (".", "..") else name


def decode_group_name(name: str) -> str:
    return unquote(name)


def group_config_path(group_id: str) -> str:
    return f"{GROUP_CONFIGS}/{encode_group_name(group_id)}"


def encode_user_name(user: str) -> str:
    """As Kafka's `Sanitizer` does: Java's URL encoding, with the star and the blank encoded."""
    name = quote(user, safe="").replace("~", "%7E")
    return name.replace(".", "%2E") if name in (".", "..") else name


def decode_user_name(name: str) -> str:
    return unquote(name)


def user_config_path(user: str) -> str:
    return f"{USER_CONFIGS}/{encode_user_name(user)}"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def deleted_topic_path(topic_id: TopicId) -> str:
    return f"{DELETED_TOPICS}/{format_uuid(topic_id)}"


def find_deleted_topic(name: str) -> TopicId | None:
    """The id that a child of `DELETED_TOPICS` stands for; None for what somebody else put there."""
    try:
        return TopicId(parse_uuid(name))
    except ValueError:
        return None


def encode_json(fields: Mapping[str, object]) -> bytes:
    """As Kafka writes it, without blanks."""
    return json.dumps(fields, separators=(",", ":")).encode()


# /cluster/id


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode_json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return NodeFields(CLUSTER_ID, data).text("id")


# /controller and /controller_epoch


def encode_controller(broker_id: BrokerId, now_ms: int) -> bytes:
    return encode_json({"version": 1, "brokerid": broker_id, "timestamp": str(now_ms)})


def decode_controller(data: bytes) -> BrokerId:
    return BrokerId(NodeFields(CONTROLLER, data).integer("brokerid"))


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    try:
        return int(data)
    except ValueError:
        raise MalformedNodeError(f"{CONTROLLER_EPOCH}: not a number: {data[:200]!r}") from None


# /brokers/ids/N


def encode_broker(broker: BrokerState, now_ms: int) -> bytes:
    """Version 5. Host and port at the top are for old clients that know PLAINTEXT alone."""
    plain = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    fields: dict[str, object] = {
        "features": {},
        "listener_security_protocol_map": {
            endpoint.listener_name: endpoint.security_protocol for endpoint in broker.endpoints
        },
        "endpoints": [_endpoint_text(endpoint) for endpoint in broker.endpoints],
        "jmx_port": -1,
        "port": -1 if plain is None else plain.port,
        "host": None if plain is None else plain.host,
        "version": 5,
        "timestamp": str(now_ms),
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    return encode_json(fields)


def decode_broker(broker_id: BrokerId, data: bytes, *, epoch: int) -> BrokerState:
    """Reads versions 1 to 5; only in version 1 are host and port all there is."""
    fields = NodeFields(broker_path(broker_id), data)
    if fields.integer("version") == 1:
        plain = Endpoint(
            listener_name="PLAINTEXT", host=fields.text("host"), port=fields.integer("port")
        )
        return BrokerState(id=broker_id, endpoints=(plain,), epoch=epoch)
    protocols = fields.text_map("listener_security_protocol_map")
    endpoints = tuple(
        _parse_endpoint(fields, text, protocols) for text in fields.texts("endpoints")
    )
    return BrokerState(
        id=broker_id,
        endpoints=endpoints,
        rack=fields.find_text("rack"),
        epoch=epoch,
    )


def _endpoint_text(endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener_name}://{host}:{endpoint.port}"


def _parse_endpoint(fields: NodeFields, text: str, protocols: Mapping[str, str]) -> Endpoint:
    match = _ENDPOINT.match(text)
    if match is None:
        raise fields.fault("endpoints", "a list of LISTENER://host:port")
    name, host, port = match.groups()
    return Endpoint(
        listener_name=name, host=host, port=int(port), security_protocol=protocols.get(name, name)
    )


# /brokers/topics/T


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """Which brokers hold a topic, as its node says. Partitions are numbered from 0, gapless."""

    topic_id: TopicId  # NO_TOPIC_ID in nodes of versions 1 and 2
    replicas: tuple[tuple[BrokerId, ...], ...]
    adding: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    origin: BranchOrigin | None = None


def encode_topic(assignment: TopicAssignment) -> bytes:
    """Version 3. What a branch was made of is ours: Kafka's tools ignore it."""
    partitions = {str(number): brokers for number, brokers in enumerate(assignment.replicas)}
    fields: dict[str, object] = {
        "removing_replicas": {str(n): brokers for n, brokers in assignment.removing.items()},
        "partitions": partitions,
        "topic_id": format_uuid(assignment.topic_id),
        "adding_replicas": {str(n): brokers for n, brokers in assignment.adding.items()},
        "version": 3,
    }
    origin = assignment.origin
    if origin is not None:
        fields |= {
            "branch_of": origin.topic,
            "branch_of_id": format_uuid(origin.topic_id),
            "branch_partitions": origin.partitions,
            "branch_epoch": origin.newest_epoch,
        }
    return encode_json(fields)


def decode_topic(topic: str, data: bytes) -> TopicAssignment:
    fields = NodeFields(topic_path(topic), data)
    replicas = fields.integers_map("partitions")
    if not replicas or sorted(replicas) != list(range(len(replicas))):
        raise fields.fault("partitions", "replicas of partitions numbered from 0 without a gap")
    if not all(replicas.values()):
        raise fields.fault("partitions", "at least one replica for each partition")
    return TopicAssignment(
        topic_id=_topic_id(fields),
        replicas=tuple(_broker_ids(replicas[number]) for number in range(len(replicas))),
        adding={n: _broker_ids(b) for n, b in fields.integers_map("adding_replicas").items()},
        removing={n: _broker_ids(b) for n, b in fields.integers_map("removing_replicas").items()},
        origin=_find_origin(fields),
    )


def _find_origin(fields: NodeFields) -> BranchOrigin | None:
    topic = fields.find_text("branch_of")
    if topic is None:
        return None
    return BranchOrigin(
        topic=topic,
        topic_id=_topic_id(fields, "branch_of_id"),
        partitions=fields.integer("branch_partitions"),
        newest_epoch=LeaderEpoch(fields.integer("branch_epoch")),
    )


def _topic_id(fields: NodeFields, name: str = "topic_id") -> TopicId:
    text = fields.find_text(name)
    try:
        return NO_TOPIC_ID if text is None else TopicId(parse_uuid(text))
    except ValueError:
        raise fields.fault(name, "22 characters of base64") from None


def _broker_ids(numbers: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return cast("tuple[BrokerId, ...]", numbers)  # thousands of them are read at a start


# /brokers/topics/T/partitions/P/state


def encode_partition_state(state: PartitionState) -> bytes:
    """Version 1. The fields of KIP-966 are ours: Kafka's tools ignore what they do not know, and
    most states need none of them."""
    fields: dict[str, object] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
    }
    if state.elr:
        fields["eligible_leader_replicas"] = state.elr
    if state.last_known_elr:
        fields["last_known_elr"] = state.last_known_elr
    if state.leader == NO_BROKER and state.last_known_leader != NO_BROKER:
        fields["last_known_leader"] = state.last_known_leader
    return encode_json(fields)


def decode_partition_state(
    topic: str, partition: int, data: bytes, version: int, assignment: TopicAssignment
) -> PartitionState:
    fields = NodeFields(partition_state_path(topic, partition), data)
    return PartitionState(
        leader=BrokerId(fields.integer("leader")),
        leader_epoch=LeaderEpoch(fields.integer("leader_epoch")),
        isr=_broker_ids(fields.integers("isr")),
        replicas=assignment.replicas[partition],
        controller_epoch=fields.integer("controller_epoch"),
        version=version,
        adding_replicas=assignment.adding.get(partition, ()),
        removing_replicas=assignment.removing.get(partition, ()),
        elr=_broker_ids(fields.find_integers("eligible_leader_replicas")),
        last_known_elr=_broker_ids(fields.find_integers("last_known_elr")),
        last_known_leader=BrokerId(fields.find_integer("last_known_leader", NO_BROKER)),
    )


# /config/…


def encode_config(config: Mapping[str, str]) -> bytes:
    return encode_json({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """An empty node counts as an empty config: old tools leave such nodes behind."""
    return NodeFields(path, data).text_map("config") if data else {}


class ConfigEntity(NamedTuple):
    """Whose config changed: ("topics", "clicks"), ("brokers", "1"), ("brokers", "<default>"),
    ("groups", "readers")."""

    kind: str
    name: str


def encode_config_change(entity: ConfigEntity) -> bytes:
    return encode_json({"version": 2, "entity_path": f"{entity.kind}/{entity.name}"})


def decode_config_change(path: str, data: bytes) -> ConfigEntity:
    """Reads version 2 and the older version 1, which names type and entity apart."""
    fields = NodeFields(path, data)
    if fields.integer("version") == 1:
        return ConfigEntity(fields.text("entity_type"), fields.text("entity_name"))
    kind, _, name = fields.text("entity_path").partition("/")
    if not name:
        raise fields.fault("entity_path", "a type and a name joined by '/'")
    return ConfigEntity(kind, name)


# /isr_change_notification/…


def encode_isr_change(partitions: Collection[tuple[str, int]]) -> bytes:
    named = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return encode_json({"version": 1, "partitions": named})


WHOLE_TOPIC = -1
"""In the place of a partition that changed: all of the topic may have, its replicas too."""


def decode_isr_change(path: str, data: bytes) -> frozenset[TopicPartition]:
    """The partitions whose states changed, or `WHOLE_TOPIC`."""
    fields = NodeFields(path, data)
    changed = set()
    for item in fields.objects("partitions"):
        topic, partition = item.get("topic"), item.get("partition")
        if not isinstance(topic, str) or not is_integer(partition):
            raise fields.fault("partitions", "a list of topics and partitions")
        changed.add(TopicPartition(topic, partition))
    return frozenset(changed)


# /latest_producer_id_block


class ProducerIdBlock(NamedTuple):
    """Producer ids that one broker may hand out."""

    broker_id: BrokerId
    first: int
    last: int  # inclusive


def encode_producer_id_block(block: ProducerIdBlock) -> bytes:
    return encode_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_id_block(data: bytes) -> ProducerIdBlock:
    fields = NodeFields(PRODUCER_ID_BLOCK, data)
    return ProducerIdBlock(
        broker_id=BrokerId(fields.integer("broker")),
        first=fields.integer_text("block_start"),
        last=fields.integer_text("block_end"),
    )


# Reads the fields of a node's JSON, each with its type, and names the path when one is wrong.
#
# Everyone with a ZooKeeper shell can write to these nodes, so nothing in them is taken on trust. A
# rule, except that its errors are about a place: `MalformedNodeError` says which node to look at.


class NodeFields:
    """The JSON object that a node holds."""

    __slots__ = ("_fields", "path")

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        try:
            fields: object = json.loads(data.decode())
        except (ValueError, RecursionError) as error:  # bad UTF-8 is a ValueError too
            raise MalformedNodeError(f"{path}: not JSON ({error}): {data[:200]!r}") from error
        if not isinstance(fields, dict):
            raise MalformedNodeError(f"{path}: not a JSON object: {data[:200]!r}")
        self._fields: Mapping[str, object] = fields

    def fault(self, name: str, wanted: str) -> MalformedNodeError:
        found = self._fields.get(name, "nothing")
        return MalformedNodeError(f"{self.path}: {name!r} should be {wanted}, found {found!r}")

    def integer(self, name: str) -> int:
        value = self._fields.get(name)
        if is_integer(value):
            return value
        raise self.fault(name, "a whole number")

    def integer_text(self, name: str) -> int:
        """A number that Kafka writes as a string, since JavaScript would round it."""
        value = self._fields.get(name)
        try:
            return int(value) if isinstance(value, str) else self.integer(name)
        except ValueError:
            raise self.fault(name, "a whole number in quotes") from None

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if isinstance(value, str):
            return value
        raise self.fault(name, "a string")

    def find_text(self, name: str) -> str | None:
        return None if self._fields.get(name) is None else self.text(name)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._fields.get(name)
        if not is_integers(value):
            raise self.fault(name, "a list of whole numbers")
        return tuple(value)

    def find_integer(self, name: str, default: int) -> int:
        return default if self._fields.get(name) is None else self.integer(name)

    def find_integers(self, name: str) -> tuple[int, ...]:
        """None of them when it is absent."""
        return () if self._fields.get(name) is None else self.integers(name)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._fields.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.fault(name, "a list of strings")
        return tuple(value)

    def text_map(self, name: str) -> dict[str, str]:
        """An object with strings as values; empty when it is absent."""
        value = self._fields.get(name) or {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise self.fault(name, "an object with strings as values")
        return value

    def integers_map(self, name: str) -> dict[int, tuple[int, ...]]:
        """An object with lists of numbers under numbers (JSON has them as strings)."""
        value = self._fields.get(name) or {}
        if not isinstance(value, dict) or not all(map(is_integers, value.values())):
            raise self.fault(name, "an object with lists of whole numbers as values")
        try:
            return {int(key): tuple(numbers) for key, numbers in value.items()}
        except ValueError:
            raise self.fault(name, "an object with numbers as names") from None

    def objects(self, name: str) -> list[Mapping[str, object]]:
        value = self._fields.get(name)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.fault(name, "a list of objects")
        return value


def is_integer(value: object) -> TypeGuard[int]:
    """A number that the protocol has room for."""
    # `type` and not isinstance: JSON's true is an int to Python, and no broker has that id.
    return type(value) is int and -(2**31) <= value < 2**31


def is_integers(value: object) -> TypeGuard[list[int]]:
    return type(value) is list and all(map(is_integer, value))


# The JSON of the nodes under `/admin`, by which tools ask the controller for something.
#
# Kafka's old tools write `/admin/delete_topics/T` (empty), `/admin/reassign_partitions` and
# `/admin/preferred_replica_election`. The first gets content when the controller begins the
# deletion: only then is the topic gone for everybody. Codecs only; who reads and writes them:
# `topic_deletion`, `reassignments`, `elections`.


class WantedReplicas(NamedTuple):
    """A partition and the brokers that it shall go to."""

    partition: TopicPartition
    replicas: tuple[BrokerId, ...]


def encode_deletion(topic_id: TopicId) -> bytes:
    return encode_json({"version": 1, "topic_id": format_uuid(topic_id)})


def find_topic_to_delete(topic: str, data: bytes) -> TopicId | None:
    """The topic whose deletion has begun; None for a mere request."""
    if not data:
        return None
    try:
        text = NodeFields(delete_topic_path(topic), data).find_text("topic_id")
        return None if text is None else TopicId(parse_uuid(text))
    except (MalformedNodeError, ValueError):
        return None  # what tools write there is a request, whatever it says


def encode_reassignment(wanted: Iterable[WantedReplicas]) -> bytes:
    partitions = [
        {"topic": one.partition.topic, "partition": one.partition.partition, "replicas": one[1]}
        for one in wanted
    ]
    return encode_json({"version": 1, "partitions": partitions})


def decode_reassignment(data: bytes) -> list[WantedReplicas]:
    fields = NodeFields(REASSIGN_PARTITIONS, data)
    wanted = []
    for item in fields.objects("partitions"):
        replicas = item.get("replicas")
        if not is_integers(replicas):
            raise fields.fault("partitions", "a list of topics, partitions and replicas")
        brokers = tuple(BrokerId(broker) for broker in replicas)
        wanted.append(WantedReplicas(_partition(fields, item), brokers))
    return wanted


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    fields = NodeFields(PREFERRED_ELECTION, data)
    return [_partition(fields, item) for item in fields.objects("partitions")]


def encode_log_dir_failure(broker_id: BrokerId) -> bytes:
    """Event 1: a log directory failed."""
    return encode_json({"version": 1, "broker": broker_id, "event": 1})


def _partition(fields: NodeFields, item: Mapping[str, object]) -> TopicPartition:
    topic, partition = item.get("topic"), item.get("partition")
    if not isinstance(topic, str) or not is_integer(partition):
        raise fields.fault("partitions", "a list of topics and partitions")
    return TopicPartition(topic, partition)
