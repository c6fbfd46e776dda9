"""Requests about users and their passwords (SCRAM). A part of `AsyncAdmin`.

await admin.set_scram_password("alice", password)
await admin.describe_scram_credentials()              # {"alice": (ScramCredentialInfo(...), ...)}
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_part import AdminPart
from moldau.client.broker_errors import error_for
from moldau.client.rules.arguments import require_names
from moldau.errors import ConfigurationError, ResourceNotFoundError
from moldau.security.rules.scram import SALT_BYTES, USUAL_ITERATIONS, salt_password
from moldau.wire.apis import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0 import AlterUserScramCredentialsResponse
    from kio.schema.describe_user_scram_credentials.v0 import (
        DescribeUserScramCredentialsResponse,
    )

_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SCRAM_MECHANISMS: Final = tuple(_NUMBERS)
_MECHANISMS: Final = {number: name for name, number in _NUMBERS.items()}


class ScramCredentialInfo(NamedTuple):
    """How a user may log in; nobody is told the credential itself."""

    mechanism: str
    iterations: int


class UserAdmin(AdminPart):
    """What `AsyncAdmin` does with users that the cluster keeps. Those who stand in the brokers'
    settings (`sasl.jaas.config`) are told to nobody."""

    async def describe_scram_credentials(
        self, users: Collection[str] | None = None
    ) -> Mapping[str, tuple[ScramCredentialInfo, ...]]:
        """Of these users, or of all; raises for one who has none."""
        named = None if users is None else [{"name": name} for name in require_names(users)]
        if named == []:
            return {}
        answer = cast(
            "DescribeUserScramCredentialsResponse",
            await self._client.call_controller(DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": named}),
        )
        if answer.error_code is not ErrorCode.none:
            raise error_for(answer.error_code, answer.error_message, "users")
        for row in answer.results:
            if row.error_code is not ErrorCode.none:
                raise error_for(row.error_code, row.error_message, f"user {row.user}")
        return {
            row.user: tuple(
                ScramCredentialInfo(
                    _MECHANISMS.get(one.mechanism, str(one.mechanism)), one.iterations
                )
                for one in row.credential_infos
            )
            for row in answer.results
        }

    async def set_scram_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Collection[str] = SCRAM_MECHANISMS,
        iterations: int = USUAL_ITERATIONS,
    ) -> str | None:
        """Give a user a password, or another one. It does not leave this process: brokers get what
        follows from it. Returns why it has no effect yet, if a broker says so."""
        if not password:
            raise ConfigurationError("the password is empty")
        for mechanism in mechanisms:
            if mechanism not in _NUMBERS:
                raise ConfigurationError(f"{mechanism!r} is not one of {', '.join(_NUMBERS)}")
        rows = [
            await asyncio.to_thread(_upsertion, user, password, mechanism, iterations)
            for mechanism in mechanisms
        ]
        return await self._alter_user({"deletions": [], "upsertions": rows})

    async def delete_scram_credentials(self, user: str) -> None:
        """Take a user's password away. Who is connected stays so until the connection ends."""
        try:
            found = await self.describe_scram_credentials((user,))
        except ResourceNotFoundError:
            raise ResourceNotFoundError(f"the cluster keeps no user {user!r}") from None
        rows = [
            {"name": user, "mechanism": _NUMBERS[one.mechanism]}
            for one in found.get(user, ())
            if one.mechanism in _NUMBERS
        ]
        await self._alter_user({"deletions": rows, "upsertions": []})

    async def _alter_user(self, values: Mapping[str, object]) -> str | None:
        answer = cast(
            "AlterUserScramCredentialsResponse",
            await self._client.call_controller(ALTER_USER_SCRAM_CREDENTIALS, values),
        )
        for row in answer.results:
            if row.error_code is not ErrorCode.none:
                raise error_for(row.error_code, row.error_message, f"user {row.user}")
        return next((row.error_message for row in answer.results if row.error_message), None)


def _upsertion(user: str, password: str, mechanism: str, iterations: int) -> dict[str, object]:
    """Takes milliseconds on purpose."""
    salt = os.urandom(SALT_BYTES)
    return {
        "name": user,
        "mechanism": _NUMBERS[mechanism],
        "iterations": iterations,
        "salt": salt,
        "salted_password": salt_password(mechanism, password, salt, iterations),
    }
