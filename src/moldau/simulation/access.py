"""Users of a simulated cluster whose rights and quotas change while they work. A shell.

In some seeds the brokers have an authorizer and a second listener, on which clients log in. A user
writes to a topic, another one reads it, and a warden gives and takes their rights and changes their
quotas. Everybody else is a super user. What must not be: a write that is acknowledged, or records
that are handed out, to somebody who had no right to it all the while (ACL-4), and a change that is
confirmed and not in the store (META-5). Who is denied hears of it, and throttled clients come to
their end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, NamedTuple

from moldau.client.admin.client import AsyncAdmin
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.producer.producer import AsyncProducer
from moldau.clock import Clock
from moldau.cluster import entity_znodes
from moldau.coordination.tree import Change
from moldau.errors import (
    ClientError,
    ClusterAuthorizationError,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
)
from moldau.model import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
    TopicPartition,
)
from moldau.quotas import QuotaEntity
from moldau.security.rules.sasl import format_jaas
from moldau.simulation.clients import (
    Client,
    ClientProcess,
    ClientSetup,
    Sent,
    SimulatedProducer,
    SimulatedReader,
)
from moldau.simulation.history import ClusterHistory
from moldau.simulation.machine import PORT
from moldau.simulation.workload import Workload

GUARDED: Final = TopicPartition("guarded", 0)
_SPARE: Final = "spare"
"""The writer may write there all the time, so that it may have a producer id."""
_SHARE_OF_SEEDS: Final = 0.12
_PASSWORDS: Final = {"writer": "writer-secret", "reader": "reader-secret"}
_USERS_PORT: Final = PORT + 1
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_HEARING_SECONDS: Final = 3.0
"""Two session time-outs: a broker that acts on its lease has heard of every change by then."""
_DOUBT_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 10.0
_PATTERN: Final = ResourcePattern(AclResourceType.TOPIC, GUARDED.topic)
_DENIED: Final = (TopicAuthorizationError, ClusterAuthorizationError)
_RATES: Final = (None, 150.0, 150.0, 300.0, 5_000.0)  # bytes in a second
_REQUEST_TIMEOUT_MS: Final = 6_000
"""Longer than a throttled broker lets five requests of one connection wait."""


class Right(NamedTuple):
    user: str
    operation: AclOperation

    def entry(self, permission: AclPermission) -> AclEntry:
        return AclEntry(f"User:{self.user}", permission, self.operation)


WRITE: Final = Right("writer", AclOperation.WRITE)
READ: Final = Right("reader", AclOperation.READ)


class AccessBook:
    """Who had which right when, as the store has it. An observer of `CoordinationService`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.entries: frozenset[AclEntry] = frozenset()
        self._now = now
        self._turns: dict[Right, list[tuple[float, bool]]] = {WRITE: [], READ: []}

    def __call__(self, changes: list[Change]) -> None:
        path = entity_znodes.acl_path(_PATTERN)
        for change in changes:
            if change.path == path:
                data = b"" if change.after is None else change.after.node.data
                self.entries = entity_znodes.decode_acls(path, data)
                for right, turns in self._turns.items():
                    is_allowed = right.entry(AclPermission.ALLOW) in self.entries
                    is_denied = right.entry(AclPermission.DENY) in self.entries
                    turns.append((self._now(), is_allowed and not is_denied))

    def had(self, right: Right, since: float) -> bool:
        """Whether it was so at any time since then."""
        for at, is_allowed in reversed(self._turns[right]):
            if is_allowed:
                return True
            if at <= since:
                return False
        return False


class ClusterAccess:
    """One for each run."""

    def __init__(self, random: Random, history: ClusterHistory, is_on: bool | None) -> None:
        """`is_on` is for the seed to say if it is None."""
        drawn = random.random() < _SHARE_OF_SEEDS
        self.is_on = drawn if is_on is None else is_on
        self.book = AccessBook(history.now)
        self.denials = 0
        self._history = history

    def options(self, replicas: str, min_in_sync: str) -> Mapping[str, str]:
        """What brokers are told beside all that holds for every seed."""
        users = {f"user_{name}": word for name, word in _PASSWORDS.items()}
        return {
            "listeners": f"PLAINTEXT://HOST:{PORT},SASL_PLAINTEXT://HOST:{_USERS_PORT}",
            "security.inter.broker.protocol": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": format_jaas(_MODULE, users),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "quota.window.num": "2",
        }

    async def make_topics(self, workload: Workload) -> None:
        await workload.make_topic("access", GUARDED.topic, 1, {})
        warden = self._make_warden(workload, "first warden")
        spare = ResourcePattern(AclResourceType.TOPIC, _SPARE)
        await warden.give([AclBinding(spare, WRITE.entry(AclPermission.ALLOW))])
        await warden.give_all()

    def clients(self, workload: Workload, suffix: str) -> Sequence[Client]:
        return (
            self._make_writer(workload, f"aw{suffix}"),
            self._make_reader(workload, f"cw{suffix}"),
            self._make_warden(workload, f"warden{suffix}"),
        )

    def _make_writer(self, workload: Workload, name: str) -> GuardedProducer:
        writer = workload.make_producer(name, GUARDED, GuardedProducer)
        writer.access, writer.bootstrap = self, _users_bootstrap(workload)
        return writer

    def _make_reader(self, workload: Workload, name: str) -> GuardedReader:
        reader = workload.make_reader(name, GUARDED, GuardedReader)
        reader.access, reader.bootstrap = self, _users_bootstrap(workload)
        reader.had_sessions = lambda since: _had_sessions(workload, since)
        return reader

    def _make_warden(self, workload: Workload, name: str) -> Warden:
        return Warden(
            workload.setup(name),
            admin=workload.open_admin(name),
            clock=workload.world.clock,
            book=self.book,
        )

    def check_use(self, right: Right, since: float, what: str) -> None:
        """Something was done for a user who asked for it at some time since then."""
        if not self.book.had(right, since - _HEARING_SECONDS):
            self._history.report(
                "ACL-4", f"{right.user} had no right since {since - _HEARING_SECONDS:.3f}: {what}"
            )

    # At the end

    async def check_end(self, workload: Workload) -> None:
        """Without rights everybody is denied, and with rights served; all that was acknowledged is
        there, in order."""
        if not self.is_on:
            return
        warden = self._make_warden(workload, "last warden")
        writer = self._make_writer(workload, "aw-last")
        reader = self._make_reader(workload, "cw-last")
        await warden.take_all()
        await self._until_heard(workload)
        self._require_denied(await writer.try_once(_PATIENCE_SECONDS), WRITE)
        self._require_denied(await reader.try_once(_PATIENCE_SECONDS), READ)
        await warden.give_all()
        await self._until_heard(workload)
        await writer.write(2)
        await reader.read_until(self._history.promised_end(GUARDED))
        self._history.check_final_log(GUARDED, "the leader", reader.values, 0)
        self._history.check_order(GUARDED, reader.values.values())

    async def _until_heard(self, workload: Workload) -> None:
        end = self._history.now() + _PATIENCE_SECONDS
        for machine in workload.machines.values():
            while True:
                broker = machine.broker
                image = None if broker is None else broker.services.image
                if image and image.acls.get(_PATTERN, frozenset()) == self.book.entries:
                    break
                if self._history.now() > end:
                    self._history.report("ACL-4", f"{machine.host} does not hear of its lists")
                    return
                await workload.world.clock.sleep(0.1)

    def _require_denied(self, outcome: BaseException | None, right: Right) -> None:
        if isinstance(outcome, _DENIED):
            self.denials += 1
        else:
            self._history.report("ACL-4", f"{right.user} has no right, and ends with {outcome!r}")


def _users_bootstrap(workload: Workload) -> str:
    return ",".join(f"{each.host}:{_USERS_PORT}" for each in workload.machines.values())


def _had_sessions(workload: Workload, since: float) -> bool:
    """Whether every broker has had its session since then: a broker without one hears of nothing,
    and serves readers all the same."""
    records = map(
        workload.world.service.records_of, (each.host for each in workload.machines.values())
    )
    return all(
        any(one.began <= since and one.ended == float("inf") for one in some) for some in records
    )


def _login(user: str) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": _PASSWORDS[user],
    }


class GuardedProducer(SimulatedProducer):
    """Writes as a user whose right comes and goes. What is denied may be there all the same: an
    attempt before may have come through."""

    access: ClusterAccess  # both are set by whoever makes it
    bootstrap: str

    def _open(self, opened: ClientProcess) -> AsyncProducer:
        return super()._open(replace(opened, bootstrap=self.bootstrap))

    def _guarantees(self) -> dict[str, Any]:
        options = {**super()._guarantees(), **_login(WRITE.user)}
        if self._habits.delivery_timeout_ms is None:
            options["request_timeout_ms"] = _REQUEST_TIMEOUT_MS
        return options

    async def _send(self, producer: AsyncProducer) -> Sent:
        row, at = self._draw_row(), self._now()
        self._next += 1
        topic, number = self._partition
        try:
            future = await producer.send(topic, row[1], row[0], partition=number)
        except (KafkaError, ClientError) as error:
            await asyncio.sleep(0.1)
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
        return Sent(row, at, self._history.power_losses, future)

    def _look_at(self, sent: Sent) -> None:
        error = sent.future.exception()
        if isinstance(error, _DENIED):
            self.access.denials += 1
            self._has_given_up = True
        elif error is None or isinstance(error, KafkaError):
            super()._look_at(sent)

    def _look_at_success(self, sent: Sent) -> None:
        super()._look_at_success(sent)
        self.access.check_use(WRITE, sent.at, f"{sent.row[1]!r} was accepted")

    async def try_once(self, seconds: float) -> BaseException | None:
        """What becomes of one record."""
        producer = self._open(self._open_process(self.name))
        sent = await asyncio.wait_for(self._send(producer), seconds)
        await asyncio.wait((sent.future,), timeout=seconds)
        outcome = sent.future.exception() if sent.future.done() else TimeoutError("no answer")
        await producer.close(0)
        return outcome


class GuardedReader(SimulatedReader):
    """Reads as a user whose right comes and goes."""

    access: ClusterAccess  # these are set by whoever makes it
    bootstrap: str
    had_sessions: Callable[[float], bool]

    def _open(self, opened: ClientProcess) -> AsyncConsumer:
        return super()._open(replace(opened, bootstrap=self.bootstrap))

    def _options(self) -> dict[str, Any]:
        return _login(READ.user)

    async def _read(self, consumer: AsyncConsumer, wants_more: Callable[[], bool]) -> None:
        consumer.assign([self._partition])
        consumer.seek(self._partition, self.position)
        former = polled_at = self._history.now()
        while wants_more():
            former, polled_at = polled_at, self._history.now()
            try:
                records = await consumer.poll(0.3)
            except (OffsetOutOfRangeError, LogTruncatedError) as error:
                self._miss(consumer, error)
                continue
            except (KafkaError, ClientError) as error:
                self.access.denials += isinstance(error, _DENIED)
                self.progress += isinstance(error, _DENIED)
                await asyncio.sleep(0.1)
                continue
            if records and self.had_sessions(former - _HEARING_SECONDS):
                self.access.check_use(READ, former, f"offset {records[0].offset} was read")
            for record in records:
                self._see_record(record)
                self.position = record.offset + 1
                self.progress += 1
        await consumer.close()

    async def try_once(self, seconds: float) -> BaseException | None:
        """What becomes of reading the first record."""
        consumer = self._open(self._open_process(self.name))
        consumer.assign([self._partition])
        consumer.seek(self._partition, 0)
        try:
            await consumer.poll(seconds)
        except (KafkaError, ClientError) as error:
            return error
        finally:
            await consumer.close()
        return None


class Warden(Client):
    """Gives and takes rights and changes quotas, one after the other. A super user."""

    def __init__(
        self,
        setup: ClientSetup,
        *,
        admin: AsyncAdmin,
        clock: Clock,
        book: AccessBook,
    ) -> None:
        super().__init__(setup)
        self.progress = 1  # nobody waits for it
        self._admin = admin
        self._clock = clock
        self._book = book
        self._doubtful_until = 0.0  # an attempt had no answer: it may be done even later

    async def run(self) -> None:
        for right in (WRITE, READ):
            await self._limit(right, self._random.choice(_RATES))
        while not self.is_stopping:
            await self._change()
            longest = self._random.choice((0.3, 1.0, 12.0))
            await self._clock.sleep(self._random.uniform(0, longest))

    async def _change(self) -> None:
        right = self._random.choice((WRITE, READ))
        if self._random.random() < 0.4:
            await self._limit(right, self._random.choice(_RATES))
            return
        permission = AclPermission.ALLOW if self._random.random() < 0.7 else AclPermission.DENY
        entry = right.entry(permission)
        if entry in self._book.entries:
            await self._take_rights([entry])
        else:
            await self.give([AclBinding(_PATTERN, entry)], attempts=1)

    async def give(self, bindings: Sequence[AclBinding], attempts: int = 100) -> None:
        for _ in range(attempts):
            try:
                errors = [*(await self._admin.create_acls(bindings)).values()]
            except (KafkaError, ClientError) as error:
                errors = [KafkaError(str(error))]
            if not any(errors):
                self._check([each.entry for each in bindings if each.pattern == _PATTERN], True)
                return
            await self._doubt()

    async def _take_rights(self, entries: Sequence[AclEntry], attempts: int = 1) -> None:
        filters = [_filter_of(entry) for entry in entries]
        for _ in range(attempts):
            try:
                outcomes = [*(await self._admin.delete_acls(filters)).values()]
            except (KafkaError, ClientError) as error:
                outcomes = [KafkaError(str(error))]
            if not any(isinstance(each, KafkaError) for each in outcomes):
                self._check(entries, False)
                return
            await self._doubt()

    async def _limit(self, right: Right, rate: float | None) -> None:
        name = "producer_byte_rate" if right is WRITE else "consumer_byte_rate"
        try:
            await self._admin.alter_client_quotas({QuotaEntity(user=right.user): {name: rate}})
        except (KafkaError, ClientError):
            return

    async def give_all(self) -> None:
        """However often it has to ask; nothing is denied and nobody limited."""
        await self._take_rights(
            [each.entry(AclPermission.DENY) for each in (WRITE, READ)], attempts=100
        )
        allowed = [AclBinding(_PATTERN, each.entry(AclPermission.ALLOW)) for each in (WRITE, READ)]
        await self.give(allowed)
        for right in (WRITE, READ):
            await self._limit(right, None)

    async def take_all(self) -> None:
        await self._take_rights(
            [each.entry(AclPermission.ALLOW) for each in (WRITE, READ)], attempts=100
        )

    async def _doubt(self) -> None:
        self._doubtful_until = self._history.now() + _DOUBT_SECONDS
        await self._clock.sleep(0.1)

    def _check(self, entries: Sequence[AclEntry], is_there: bool) -> None:
        """A change was confirmed. One of before, whose answer was lost, may have come after it."""
        for entry in entries:
            if (entry in self._book.entries) != is_there and (
                self._history.now() > self._doubtful_until
            ):
                word = "given" if is_there else "taken"
                self._history.report("META-5", f"{entry} was {word}, and that is not in the store")


def _filter_of(entry: AclEntry) -> AclFilter:
    return AclFilter(
        AclResourceType.TOPIC,
        GUARDED.topic,
        PatternType.LITERAL,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )
