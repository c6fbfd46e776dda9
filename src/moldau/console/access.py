"""Users, access control lists and quotas: asks about them, changes them, rows of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from moldau.client.admin.access import ScramCredentialInfo
from moldau.console.cluster import Cluster
from moldau.console.paging import matches, natural_key
from moldau.errors import ConfigurationError, UnsupportedByBrokerError
from moldau.model import AclBinding, AclOperation, AclPermission
from moldau.quotas import DEFAULT, EntityName, QuotaEntity, QuotaKind

Row = dict[str, object]

_DEFAULT_WORD = "default"
_IN_BYTES = frozenset({"producer_byte_rate", "consumer_byte_rate"})


def user_rows(users: Mapping[str, Collection[ScramCredentialInfo]], search: str) -> Sequence[Row]:
    return [
        {
            "id": name,
            "user": name,
            "mechanisms": ", ".join(one.mechanism for one in credentials),
            "iterations": ", ".join(
                f"{number:,}" for number in sorted({one.iterations for one in credentials})
            ),
        }
        for name, credentials in sorted(users.items(), key=lambda one: natural_key(one[0]))
        if matches(name, search)
    ]


def check_password(password: str, again: str) -> str:
    """Two people who look at stars write two things."""
    if not password:
        raise ConfigurationError("The password is empty")
    if password != again:
        raise ConfigurationError("The passwords are not the same")
    return password


def parse_name(text: str) -> str:
    name = text.strip()
    if not name:
        raise ConfigurationError("A user has a name")
    return name


def parse_entity(user: str, client_id: str, address: str) -> QuotaEntity:
    """Whose quota, as a person writes it; `default` stands for all that have none of their own."""
    names = [_name_of(text.strip()) for text in (user, client_id, address)]
    if names[2] is not None and (names[0] is not None or names[1] is not None):
        raise ConfigurationError("An address stands alone, without a user and a client id")
    if all(name is None for name in names):
        raise ConfigurationError("Say whose quota it is: a user, a client id or an address")
    return QuotaEntity(*names)


def _name_of(text: str) -> EntityName | None:
    if not text:
        return None
    return DEFAULT if text == _DEFAULT_WORD else text


def quotas_of(entity: QuotaEntity) -> Sequence[str]:
    """What can be limited of it."""
    is_address = entity.ip is not None
    return [kind.value for kind in QuotaKind if (kind is QuotaKind.CONNECTION) == is_address]


def parse_limit(text: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        raise ConfigurationError(f"{text or 'Nothing'} is no number") from None
    if not 0 < limit < float("inf"):
        raise ConfigurationError("A limit is a number above 0")
    return limit


def limit_text(limit: float) -> str:
    """As it can be written again: every digit counts."""
    return str(int(limit)) if limit.is_integer() else repr(limit)


def acl_rows(bindings: Collection[AclBinding], search: str) -> Sequence[Row]:
    rows = []
    for one in bindings:
        pattern, entry = one.pattern, one.entry
        resource = f"{pattern.type.label} {pattern.name}"
        row: Row = {
            "id": str(one),
            "principal": entry.principal,
            "permission": entry.permission.label,
            "severity": 2 if entry.permission is AclPermission.DENY else 0,
            "operation": entry.operation.label,
            "resource": resource,
            "pattern": pattern.pattern_type.label,
            "host": "any" if entry.host == "*" else entry.host,
        }
        if matches(f"{entry.principal} {resource} {row['operation']}", search):
            rows.append(row)
    return sorted(rows, key=lambda row: (natural_key(str(row["principal"])), str(row["resource"])))


def quota_rows(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> Sequence[Row]:
    return [
        {
            "id": quota_id(entity, name),
            "entity": str(entity),
            "quota": name,
            "limit": f"{limit:,.0f} B/s" if name in _IN_BYTES else limit_text(limit),
        }
        for entity, limits in sorted(quotas.items(), key=lambda one: str(one[0]))
        for name, limit in sorted(limits.items())
    ]


def quota_id(entity: QuotaEntity, name: str) -> str:
    """Names a row; two entities of the same words are told apart."""
    return f"{entity!r} {name}"


async def find_rights(cluster: Cluster) -> frozenset[AclOperation]:
    """What may be done to the cluster. All of it, as far as is known, where it does not tell."""
    try:
        return await cluster.admin.find_cluster_operations()
    except UnsupportedByBrokerError:
        return frozenset(AclOperation)


async def set_password(cluster: Cluster, user: str, password: str) -> str | None:
    """Returns why it has no effect yet, if there is a reason."""
    cluster.require_writable()
    return await cluster.admin.set_scram_password(user, password)


async def delete_user(cluster: Cluster, user: str) -> None:
    cluster.require_writable()
    await cluster.admin.delete_scram_credentials(user)


async def change_quota(
    cluster: Cluster, entity: QuotaEntity, name: str, limit: float | None
) -> None:
    """Set a limit, or remove it with None."""
    cluster.require_writable()
    error = (await cluster.admin.alter_client_quotas({entity: {name: limit}}))[entity]
    if error is not None:
        raise error
