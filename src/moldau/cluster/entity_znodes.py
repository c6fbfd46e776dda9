"""Znodes of entities: access control lists, quotas, and the roots of everything a cluster keeps."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import unquote

from moldau.cluster import znodes
from moldau.cluster.znodes import NodeFields
from moldau.errors import MalformedNodeError
from moldau.model import (
    ANYBODY,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from moldau.quotas import (
    DEFAULT,
    QUOTA_NAMES,
    Default,
    EntityName,
    QuotaEntity,
    QuotaKind,
    kinds_of,
)

# Where access control lists are kept, and in which form: Kafka's classic znodes.
#
#     /kafka-acl/Topic/clicks                     the entries of a literal pattern
#     /kafka-acl-extended/prefixed/Topic/orders.  those of a prefixed one
#     /kafka-acl-changes/acl_changes_…            tells brokers which literal ones changed
#     /kafka-acl-extended-changes/acl_changes_…   tells them which others did
#
# Paths and codecs only, as in `znodes`. A node that makes no sense may have forbidden something, so
# it counts as one that forbids everything to everybody (ACL-3).


_log = logging.getLogger("moldau.cluster")

LITERAL_ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
LITERAL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_CHANGES: Final = "/kafka-acl-extended-changes"
_CHANGE: Final = "acl_changes_"

STORES: Final[Mapping[PatternType, str]] = {
    PatternType.LITERAL: LITERAL_ACLS,
    PatternType.PREFIXED: PREFIXED_ACLS,
}

ACL_PATHS: Final = (
    *(f"{root}/{kind.label}" for root in STORES.values() for kind in AclResourceType.choices()),
    LITERAL_CHANGES,
    EXTENDED_CHANGES,
)
"""What a broker with an authorizer makes sure of when it starts, as Kafka does."""

DAMAGED: Final = frozenset({AclEntry(ANYBODY, AclPermission.DENY, AclOperation.ALL)})
"""In the place of entries that cannot be read."""

_NO_NODE_NAME = r"[/\x00-\x1f\x7f-\x9f\ud800-\udfff\ufff0-\uffff]|%(?=[0-9A-Fa-f]{2})"
"""What cannot stand in the name of a node, or would be read as something else."""


def _encode_name(name: str) -> str:
    """A name as that of a node. Kafka writes them as they are, and so does this wherever that is
    possible; `/` and the like, which a group's id may have, are percent-encoded."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return re.sub(_NO_NODE_NAME, _encode_character, name)


def _encode_character(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found.group().encode("utf-8", "surrogatepass"))


def acl_path(pattern: ResourcePattern) -> str:
    root = STORES[pattern.pattern_type]
    return f"{root}/{pattern.type.label}/{_encode_name(pattern.name)}"


def find_acl_type(label: str) -> AclResourceType | None:
    """The type that a folder is for; None for one that somebody else put there."""
    return next((one for one in AclResourceType.choices() if one.label == label), None)


def read_pattern(kind: AclResourceType, node_name: str, of: PatternType) -> ResourcePattern:
    return ResourcePattern(kind, unquote(node_name, errors="surrogatepass"), of)


def encode_acls(entries: Collection[AclEntry]) -> bytes:
    rows = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission.label,
            "operation": entry.operation.label,
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return znodes.encode_json({"version": 1, "acls": rows})


def decode_acls(path: str, data: bytes) -> frozenset[AclEntry]:
    """The entries; `DAMAGED` where the node makes no sense."""
    if not data:
        return frozenset()
    try:
        fields = NodeFields(path, data)
        return frozenset(_decode_entry(fields, row) for row in fields.objects("acls"))
    except MalformedNodeError as error:
        _log.error(
            "an access control list cannot be read: until it is removed (`moldau acls remove`) and "
            "given anew nobody but super users may use what it is about: %s",
            error,
        )
        return DAMAGED


def _decode_entry(fields: NodeFields, row: Mapping[str, object]) -> AclEntry:
    texts = [row.get(name) for name in ("principal", "permissionType", "operation", "host")]
    try:
        principal, permission, operation, host = (_require_text(text) for text in texts)
        read = AclEntry(
            principal, AclPermission.parse(permission), AclOperation.parse(operation), host
        )
    except ValueError:
        raise fields.fault("acls", "principals with permissions and operations") from None
    if read.permission not in AclPermission.choices() or read.operation < AclOperation.ALL:
        raise fields.fault("acls", "entries without ANY and UNKNOWN")
    return read


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("is no text")
    return value


def encode_acl_change(pattern: ResourcePattern) -> tuple[str, bytes]:
    """The beginning of the path of a notification, and its data."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{LITERAL_CHANGES}/{_CHANGE}", f"{pattern.type.label}:{pattern.name}".encode()
    fields = {
        "version": 1,
        "resourceType": pattern.type.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return f"{EXTENDED_CHANGES}/{_CHANGE}", znodes.encode_json(fields)


def decode_literal_change(path: str, data: bytes) -> ResourcePattern:
    label, colon, name = data.decode(errors="surrogateescape").partition(":")
    try:
        if not colon or not name:
            raise ValueError("is not of the form Type:name")
        return ResourcePattern(AclResourceType.parse(label), name)
    except ValueError as error:
        raise MalformedNodeError(f"{path}: {data[:200]!r} {error}") from None


def decode_extended_change(path: str, data: bytes) -> ResourcePattern:
    fields = NodeFields(path, data)
    try:
        pattern = ResourcePattern(
            AclResourceType.parse(fields.text("resourceType")),
            fields.text("name"),
            PatternType.parse(fields.text("patternType")),
        )
    except ValueError:
        raise fields.fault("resourceType", "a type, with a patternType") from None
    if pattern.pattern_type not in STORES:
        raise fields.fault("patternType", "LITERAL or PREFIXED")
    return pattern


# Where quotas are kept: the classic nodes of users, clients and addresses.
#
#     /config/users/U              /config/clients/C
#     /config/users/U/clients/C    /config/ips/A
#
# `<default>` in the place of a name is the default. Names are percent-encoded as Kafka does it, so
# any text may be one. The node of a user holds its SCRAM credentials, too: whoever writes quotas
# leaves alone what is no quota. Paths and codecs only.


_CONFIG = "/config/"
_USERS, _CLIENTS, _IPS = "users", "clients", "ips"
_WHOLE = frozenset({QuotaKind.PRODUCE.value, QuotaKind.FETCH.value, QuotaKind.CONNECTION.value})


def encode_name(name: EntityName) -> str:
    return name.value if isinstance(name, Default) else znodes.encode_user_name(name)


def decode_name(text: str) -> EntityName:
    return DEFAULT if text == DEFAULT.value else unquote(text)


def quota_entity_path(entity: QuotaEntity) -> str:
    """Below `/config/`; what notifications call the entity."""
    if entity.ip is not None:
        return f"{_IPS}/{_address(entity.ip)}"
    parts = []
    if entity.user is not None:
        parts.append(f"{_USERS}/{encode_name(entity.user)}")
    if entity.client_id is not None:
        parts.append(f"{_CLIENTS}/{encode_name(entity.client_id)}")
    return "/".join(parts)


def quota_path(entity: QuotaEntity) -> str:
    return _CONFIG + quota_entity_path(entity)


def quota_parents(entity: QuotaEntity) -> tuple[str, ...]:
    """What has to be there above the node of a client of a user, outermost first."""
    if entity.user is None or entity.client_id is None:
        return ()
    user = f"{znodes.USER_CONFIGS}/{encode_name(entity.user)}"
    return user, f"{user}/{_CLIENTS}"


def find_quota_entity(path: str) -> QuotaEntity | None:
    """The entity of a path below `/config/`; None where it is none that has quotas."""
    match path.split("/"):
        case ["users", user] if user:
            return QuotaEntity(user=decode_name(user))
        case ["users", user, "clients", client] if user and client:
            return QuotaEntity(user=decode_name(user), client_id=decode_name(client))
        case ["clients", client] if client:
            return QuotaEntity(client_id=decode_name(client))
        case ["ips", ip] if ip:
            return QuotaEntity(ip=DEFAULT if ip == DEFAULT.value else ip)
    return None


def decode_quotas(entity: QuotaEntity, data: bytes) -> dict[str, float]:
    """Only what is a quota."""
    config = znodes.decode_config(quota_path(entity), data)
    quotas = {}
    for kind in kinds_of(entity):
        text = config.get(kind.value)
        if text is None:
            continue
        try:
            quotas[kind.value] = float(text)
        except ValueError:
            raise MalformedNodeError(
                f"{quota_path(entity)}: {kind.value} is no number: {text[:200]!r}"
            ) from None
    return quotas


def with_quotas(config: Mapping[str, str], quotas: Mapping[str, float]) -> dict[str, str]:
    """The config of a node with these quotas, and with all else that it holds."""
    others = {name: text for name, text in config.items() if name not in QUOTA_NAMES}
    return {**others, **{name: _number(name, limit) for name, limit in quotas.items()}}


def _number(name: str, limit: float) -> str:
    """As Kafka writes them: bytes and connections as whole numbers, the others as Java prints a
    double."""
    return str(int(limit)) if name in _WHOLE else str(float(limit))


def _address(ip: EntityName) -> str:
    return ip.value if isinstance(ip, Default) else ip


_PATHS: Final = (
    *znodes.PERSISTENT_PATHS,
    *ACL_PATHS,
    znodes.CLUSTER_ID,
    znodes.CONTROLLER,
    znodes.CONTROLLER_EPOCH,
    znodes.PRODUCER_ID_BLOCK,
    znodes.DELEGATION_TOKENS,
    "/feature",  # of a former Kafka
)

STORE_ROOTS: Final = tuple(sorted({f"/{path.split('/')[1]}" for path in _PATHS}))
