"""Where access control lists are kept, and in which form: Kafka's classic znodes.

    /kafka-acl/Topic/clicks                     the entries of a literal pattern
    /kafka-acl-extended/prefixed/Topic/orders.  those of a prefixed one
    /kafka-acl-changes/acl_changes_…            tells brokers which literal ones changed
    /kafka-acl-extended-changes/acl_changes_…   tells them which others did

Paths and codecs only, as in `layout`. A node that makes no sense may have forbidden something, so
it counts as one that forbids everything to everybody (ACL-3).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import unquote

from moldau.cluster.node_fields import NodeFields
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
    return json.dumps({"version": 1, "acls": rows}, separators=(",", ":")).encode()


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
    data = json.dumps(fields, separators=(",", ":")).encode()
    return f"{EXTENDED_CHANGES}/{_CHANGE}", data


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
