"""Where quotas are kept: the classic nodes of users, clients and addresses.

    /config/users/U              /config/clients/C
    /config/users/U/clients/C    /config/ips/A

`<default>` in the place of a name is the default. Names are percent-encoded as Kafka does it, so
any text may be one. The node of a user holds its SCRAM credentials, too: whoever writes quotas
leaves alone what is no quota. Paths and codecs only.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

from moldau.cluster import layout
from moldau.errors import MalformedNodeError
from moldau.quotas import (
    DEFAULT,
    QUOTA_NAMES,
    Default,
    EntityName,
    QuotaEntity,
    QuotaKind,
    kinds_of,
)

_CONFIG = "/config/"
_USERS, _CLIENTS, _IPS = "users", "clients", "ips"
_WHOLE = frozenset({QuotaKind.PRODUCE.value, QuotaKind.FETCH.value, QuotaKind.CONNECTION.value})


def sanitize(name: str) -> str:
    """As Kafka's `Sanitizer`: what Java's URLEncoder leaves, without `+` and `*`."""
    return quote(name, safe="").replace("~", "%7E")


def encode_name(name: EntityName) -> str:
    return name.value if isinstance(name, Default) else sanitize(name)


def decode_name(text: str) -> EntityName:
    return DEFAULT if text == DEFAULT.value else unquote(text)


def entity_path(entity: QuotaEntity) -> str:
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
    return _CONFIG + entity_path(entity)


def parents(entity: QuotaEntity) -> tuple[str, ...]:
    """What has to be there above the node of a client of a user, outermost first."""
    if entity.user is None or entity.client_id is None:
        return ()
    user = f"{layout.USER_CONFIGS}/{encode_name(entity.user)}"
    return user, f"{user}/{_CLIENTS}"


def find_entity(path: str) -> QuotaEntity | None:
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
    config = layout.decode_config(quota_path(entity), data)
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
