"""The SCRAM credentials of users in the coordination store, in Kafka's format. A shell.

`/config/users/NAME` holds one setting for each mechanism, beside the user's quotas, which are left
alone. Credentials are read at each login, so one that was taken away is good for no further one. A
store that does not answer is a reason to remember the last answer: brokers must find back to each
other without it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from moldau.cluster import layout
from moldau.cluster.change_notifications import catch_up
from moldau.cluster.layout import ConfigEntity
from moldau.coordination.port import (
    BadVersionError,
    Coordination,
    Create,
    NodeExistsError,
    Operation,
    SessionExpiredError,
    SetData,
    StoreLostError,
)
from moldau.errors import MalformedNodeError, RequestTimedOutError

if TYPE_CHECKING:
    from moldau.security.rules.scram import ScramCredential

_log = logging.getLogger("moldau.cluster")

_ATTEMPTS: Final = 10
_MOST_REMEMBERED: Final = 10_000

LONGEST_USER_NAME: Final = 4096
"""As it stands in a path. ZooKeeper ends the connection of whoever sends it a request of a
megabyte, and with it the broker's session may end; no client shall be able to bring that about."""

CredentialChange: TypeAlias = "Mapping[str, ScramCredential | None]"
"""What shall be, by mechanism; None for no credential."""


class UserCredentials:
    """Reads and writes them. Safe to call from many tasks of one loop at once."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._remembered: dict[str, Mapping[str, ScramCredential]] = {}

    async def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """For a login: anybody may ask, with any name."""
        if len(layout.encode_user_name(user)) > LONGEST_USER_NAME:
            return None
        return (await self.of_user(user)).get(mechanism)

    async def of_user(self, user: str) -> Mapping[str, ScramCredential]:
        """The user's credentials by mechanism."""
        path = layout.user_config_path(user)
        try:
            node = await self._coordination.get(path)
        except (StoreLostError, SessionExpiredError):
            if user in self._remembered:
                return self._remembered[user]
            raise
        configs = {} if node is None else layout.decode_config(path, node.data)
        found = _credentials(path, configs)
        self._remembered.pop(user, None)
        if found:
            self._remembered[user] = found
            if len(self._remembered) > _MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return found

    async def users(self) -> list[str]:
        """All who have a setting, a credential or not."""
        names = await self._coordination.children(layout.USER_CONFIGS)
        return [layout.decode_user_name(name) for name in names if name != layout.DEFAULT_BROKER]

    async def change(self, user: str, change: CredentialChange) -> None:
        """Write a user's credentials. Other settings of the user stay as they are."""
        for _ in range(_ATTEMPTS):
            try:
                operations = await self._plan(user, change)
                if not operations:  # by what was read, which may be old
                    await catch_up(self._coordination)
                    operations = await self._plan(user, change)
                if operations:
                    await self._coordination.transact(operations)
            except (BadVersionError, NodeExistsError):
                continue
            else:
                return
        raise RequestTimedOutError(f"others change the settings of {user!r} all the time")

    async def _plan(self, user: str, change: CredentialChange) -> list[Operation]:
        path = layout.user_config_path(user)
        node = await self._coordination.get(path)
        configs = {} if node is None else dict(layout.decode_config(path, node.data))
        wanted = {name: text for name, text in configs.items() if name not in change}
        wanted |= {name: str(one) for name, one in change.items() if one is not None}
        if wanted == configs:
            return []
        data = layout.encode_config(wanted)
        write: Operation = (
            Create(path=path, data=data)
            if node is None
            else SetData(path=path, data=data, version=node.version)
        )
        entity = ConfigEntity("users", layout.encode_user_name(user))
        announced = Create(
            path=layout.CONFIG_CHANGE_PREFIX,
            data=layout.encode_config_change(entity),
            sequential=True,
        )
        return [write, announced]


def _credentials(path: str, configs: Mapping[str, str]) -> Mapping[str, ScramCredential]:
    from moldau.security.rules.scram import HASHES, ScramCredential

    found: dict[str, ScramCredential] = {}
    for mechanism in HASHES:
        text = configs.get(mechanism)
        if not text:
            continue
        try:
            found[mechanism] = ScramCredential.parse(text)
        except ValueError as fault:
            # Without the text: whoever has it can try passwords against it.
            raise MalformedNodeError(f"{path}: the credential of {mechanism} {fault}") from None
    return found
