"""Credentials kept in the coordination store: SCRAM users and delegation tokens. A shell."""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, NoReturn
from urllib.parse import quote
from uuid import UUID

from moldau.clock import Clock
from moldau.cluster import znodes
from moldau.cluster.change_notifications import announce_config, catch_up
from moldau.cluster.cluster_admin import kafka_errors
from moldau.cluster.znodes import DELEGATION_TOKENS, decode_user_name, encode_user_name
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import (
    BadVersionError,
    Coordination,
    CoordinationError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    StoreLostError,
    write_over,
)
from moldau.errors import (
    DelegationTokenAuthDisabledError,
    DelegationTokenNotFoundError,
    InvalidRequestError,
    MalformedNodeError,
    RequestTimedOutError,
)
from moldau.model import Principal, format_uuid
from moldau.security.rules.delegation_tokens import (
    DelegationToken,
    TokenLifetimes,
    expire_token,
    issue_token,
    renew_token,
    token_hmac,
    token_password,
)
from moldau.security.rules.scram import HASHES, ScramCredential

# The SCRAM credentials of users in the coordination store, in Kafka's format. A shell.
#
# `/config/users/NAME` holds one setting for each mechanism, beside the user's quotas, which are
# left alone. Credentials are read at each login, so one that was taken away is good for no further
# one. A store that does not answer is a reason to remember the last answer: brokers must find back
# to each other without it.


_log = logging.getLogger("moldau.cluster")

_ATTEMPTS: Final = 10
_MOST_REMEMBERED: Final = 10_000

LONGEST_USER_NAME: Final = 4096
"""As it stands in a path. ZooKeeper ends the connection of whoever sends it a request of a
megabyte, and with it the broker's session may end; no client shall be able to bring that about."""

CredentialChange = Mapping[str, ScramCredential | None]
"""What shall be, by mechanism; None for no credential."""


class UserCredentials:
    """Reads and writes them. Safe to call from many tasks of one loop at once."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._remembered: dict[str, Mapping[str, ScramCredential]] = {}

    async def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """For a login: anybody may ask, with any name."""
        if len(znodes.encode_user_name(user)) > LONGEST_USER_NAME:
            return None
        return (await self.read_credentials(user)).get(mechanism)

    async def read_credentials(self, user: str) -> Mapping[str, ScramCredential]:
        """The user's credentials by mechanism."""
        path = znodes.user_config_path(user)
        try:
            node = await self._coordination.get(path)
        except (StoreLostError, SessionExpiredError):
            if user in self._remembered:
                return self._remembered[user]
            raise
        configs = {} if node is None else znodes.decode_config(path, node.data)
        found = _credentials(path, configs)
        self._remembered.pop(user, None)
        if found:
            self._remembered[user] = found
            if len(self._remembered) > _MOST_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
        return found

    async def list_users(self) -> list[str]:
        """All who have a setting, a credential or not."""
        names = await self._coordination.children(znodes.USER_CONFIGS)
        return [znodes.decode_user_name(name) for name in names if name != znodes.DEFAULT_BROKER]

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
        path = znodes.user_config_path(user)
        node = await self._coordination.get(path)
        configs = {} if node is None else dict(znodes.decode_config(path, node.data))
        wanted = {name: text for name, text in configs.items() if name not in change}
        wanted |= {name: str(one) for name, one in change.items() if one is not None}
        if wanted == configs:
            return []
        write = write_over(path, node, znodes.encode_config(wanted))
        return [write, announce_config("users", znodes.encode_user_name(user))]


def _credentials(path: str, configs: Mapping[str, str]) -> Mapping[str, ScramCredential]:
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


# The delegation tokens in the coordination store, in Kafka's classic layout. A shell.
#
#     /delegation_token/tokens/ID     owner, requester, renewers and times; not the token's secret
#
# Tokens are read at each login and at each request about them, so there is nothing that could be
# out of date. Kafka's brokers, which keep them in memory, tell each other of changes
# (`/delegation_token/token_changes`); nobody here would read that, so it is not written.


TOKENS: Final = DELEGATION_TOKENS
_VERSION: Final = 3
_LONGEST_ID: Final = 100
"""As a client may say it at a login; ours and Kafka's have 22 characters."""
_MOST_BYTES: Final = 64 << 10
"""Of a token in the store, whose renewers a client names: all tokens are read to find one by its
secret."""


class ExpiredToken(NamedTuple):
    """What came of `expire`."""

    token_id: str
    expiry_ms: int


class DelegationTokens:
    """Reads and writes them. Safe to call from many tasks of one loop at once."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        options: Callable[[], BrokerOptions],
        make_uuid: Callable[[], UUID],
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._options = options
        self._make_uuid = make_uuid

    @property
    def is_enabled(self) -> bool:
        return bool(self._options().delegation_token_secret_key)

    def require_enabled(self) -> str:
        """The brokers' common key."""
        key = self._options().delegation_token_secret_key
        if not key:
            raise DelegationTokenAuthDisabledError(
                "delegation tokens need delegation.token.secret.key, the same on every broker"
            )
        return key

    def hmac_of(self, token: DelegationToken) -> bytes:
        return token_hmac(self.require_enabled(), token.token_id)

    async def find(self, token_id: str) -> tuple[DelegationToken, str] | None:
        """For a login: the token, and the password that proves it; None where it is not good."""
        key = self._options().delegation_token_secret_key
        if not key or len(token_id) > _LONGEST_ID:
            return None
        path = _path(token_id)
        node = await self._coordination.get(path)
        token = None if node is None else _find_token(path, node.data)
        if token is None or token.token_id != token_id or token.is_expired(self._clock.now_ms()):
            return None
        return token, token_password(key, token_id)

    async def create(
        self,
        owner: Principal,
        requester: Principal,
        renewers: tuple[Principal, ...],
        wanted_ms: int,
    ) -> DelegationToken:
        self.require_enabled()
        token = issue_token(
            format_uuid(self._make_uuid()),
            owner=owner,
            requester=requester,
            renewers=renewers,
            wanted_ms=wanted_ms,
            lifetimes=self._lifetimes(),
            now_ms=self._clock.now_ms(),
        )
        data = encode_token(token)
        if len(data) > _MOST_BYTES:
            raise InvalidRequestError(
                "the token has too many renewers, or their names are too long"
            )
        with kafka_errors():
            await self._coordination.create(_path(token.token_id), data, parents=True)
        return token

    async def renew(self, secret: bytes, principal: Principal, period_ms: int) -> DelegationToken:
        def change(token: DelegationToken) -> DelegationToken:
            now_ms = self._clock.now_ms()
            return renew_token(token, principal, period_ms, self._lifetimes(), now_ms)

        return (await self._change(secret, change)).left or _not_found()

    async def expire(self, secret: bytes, principal: Principal, period_ms: int) -> ExpiredToken:
        now_ms = self._clock.now_ms()

        def change(token: DelegationToken) -> DelegationToken | None:
            return expire_token(token, principal, period_ms, now_ms)

        token_id, left = await self._change(secret, change)
        return ExpiredToken(token_id, now_ms if left is None else left.expiry_ms)

    async def list_tokens(self) -> list[DelegationToken]:
        with kafka_errors():
            return [token for token, _ in await self._read_all()]

    async def remove_expired(self) -> None:
        now_ms = self._clock.now_ms()
        for token, version in await self._read_all():
            if token.is_expired(now_ms):
                try:
                    await self._coordination.delete(_path(token.token_id), version)
                except (BadVersionError, NoNodeError):
                    continue  # it was renewed, or somebody else was faster

    async def run(self, is_controller: Callable[[], bool]) -> None:
        """Remove what has expired, as long as the broker lives, while it is the controller."""
        while True:
            pause_ms = self._options().delegation_token_expiry_check_interval_ms
            await self._clock.sleep(pause_ms / 1000)
            if is_controller():
                try:
                    await self.remove_expired()
                except CoordinationError:
                    continue  # the store is away; the next time comes

    async def _change(
        self, secret: bytes, change: Callable[[DelegationToken], DelegationToken | None]
    ) -> _Change:
        for _ in range(_ATTEMPTS):
            with kafka_errors():
                token, version = await self._require(secret)
                changed = change(token)
                path = _path(token.token_id)
                try:
                    if changed is None:
                        await self._coordination.delete(path, version)
                    else:
                        await self._coordination.set(path, encode_token(changed), version)
                except (BadVersionError, NoNodeError):
                    continue
                return _Change(token.token_id, changed)
        raise RequestTimedOutError("others change the token all the time")

    async def _require(self, secret: bytes) -> tuple[DelegationToken, int]:
        key = self.require_enabled()
        for token, version in await self._read_all():
            if hmac.compare_digest(token_hmac(key, token.token_id), secret):
                return token, version
        return _not_found()

    async def _read_all(self) -> list[tuple[DelegationToken, int]]:
        names = await self._coordination.children(TOKENS)
        paths = [f"{TOKENS}/{name}" for name in names]
        nodes = await self._coordination.get_many(paths)
        return [
            (token, node.version)
            for path, node in zip(paths, nodes, strict=True)
            if node is not None and (token := _find_token(path, node.data)) is not None
        ]

    def _lifetimes(self) -> TokenLifetimes:
        options = self._options()
        return TokenLifetimes(
            options.delegation_token_max_lifetime_ms, options.delegation_token_expiry_time_ms
        )


class _Change(NamedTuple):
    token_id: str
    left: DelegationToken | None  # None when it was removed


def _not_found() -> NoReturn:
    raise DelegationTokenNotFoundError("there is no such token")


def _path(token_id: str) -> str:
    name = quote(token_id, safe="")
    return f"{TOKENS}/{name.replace('.', '%2E') if name in ('.', '..') else name}"


def encode_token(token: DelegationToken) -> bytes:
    """As Kafka keeps it in ZooKeeper (version 3)."""
    fields = {
        "version": _VERSION,
        "owner": encode_user_name(str(token.owner)),
        "tokenRequester": encode_user_name(str(token.requester)),
        "renewers": [encode_user_name(str(one)) for one in token.renewers],
        "issueTimestamp": token.issue_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expiry_ms,
        "tokenId": token.token_id,
    }
    return znodes.encode_json(fields)


def _find_token(path: str, data: bytes) -> DelegationToken | None:
    """None for what no broker has written: the other tokens are good all the same."""
    try:
        return decode_token(path, data)
    except MalformedNodeError as error:
        _log.error("%s; it is left out", error)
        return None


def decode_token(path: str, data: bytes) -> DelegationToken:
    """Versions 1 to 3; before 3 whoever owns a token has asked for it."""
    try:
        fields = json.loads(data)
        owner = _principal(fields["owner"])
        asked_by = fields.get("tokenRequester")
        return DelegationToken(
            token_id=str(fields["tokenId"]),
            owner=owner,
            requester=owner if asked_by is None else _principal(asked_by),
            renewers=tuple(_principal(one) for one in fields.get("renewers", ())),
            issue_ms=int(fields["issueTimestamp"]),
            expiry_ms=int(fields["expiryTimestamp"]),
            max_ms=int(fields["maxTimestamp"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedNodeError(f"{path} is not a delegation token: {error}") from None


def _principal(text: str) -> Principal:
    return Principal.parse(decode_user_name(text))
