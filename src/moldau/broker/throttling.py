"""Throttling: what a request costs its client, and how long the client has to wait.

As KIP-124 and KIP-219 have it. A `RequestThrottle` is made for a request only while there are
quotas. Bytes that are produced are charged when they arrive, bytes that are fetched when they are
about to leave, changes of topics before they are made, and the time that the broker worked for a
request when it is over. The longest of these waits is the response's `throttle_time_ms`, and the
connection is muted for that time. Limits and accounts are in `moldau.quotas`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

from moldau.broker.api import Services
from moldau.broker.inter_broker import is_for_brokers
from moldau.clock import Clock, Timer
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.errors import ThrottlingQuotaExceededError
from moldau.model import BrokerId
from moldau.net.port import Connection
from moldau.quotas import AppliedQuota, ClientQuotas, QuotaKind, QuotaWindows, WaitingClient
from moldau.wire.apis import PRODUCE
from moldau.wire.headers import RequestHeader

T = TypeVar("T")

MOST_SECONDS_FOR_TIME: Final = 1.0
"""A client that used too much time waits no longer than this at once, as in Kafka."""

_PERCENT: Final = 100.0
_BROKER_PREFIX: Final = "broker-"
_FETCHER_SUFFIX: Final = "-fetcher"
_UNLIMITED_BYTES: Final = (1 << 31) - 1


_MOST_MILLISECONDS: Final = (1 << 31) - 1
"""Of `throttle_time_ms`, which has 32 bits."""


class RequestThrottle:
    """The bill of one request."""

    __slots__ = (
        "_applied",
        "_began",
        "_client_id",
        "_is_noted",
        "_quotas",
        "_used",
        "_user",
        "throttle_ms",
    )

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str) -> None:
        self._quotas = quotas
        self._user = user
        self._client_id = client_id
        self._applied: AppliedQuota | None = None  # for whose sake the client waits the longest
        self._is_noted = False  # that it waits
        self._began: float | None = quotas.clock.monotonic()  # None while the request waits
        self._used = 0.0  # seconds of the loop before `_began` that are not charged yet
        self.throttle_ms = 0  # how long the client has to wait; known when its time is charged

    def produce(self, size_bytes: int) -> None:
        """The request brings records: all of its bytes count, as in Kafka."""
        applied = self._quotas.find(QuotaKind.PRODUCE, self._user, self._client_id)
        if applied is not None:
            self._wait(applied, self._quotas.charge(applied, size_bytes))

    def allowed_fetch_bytes(self) -> int:
        """How much an answer may carry at most, but for its first batch: as much as in Kafka. Some
        clients recognise aborted records only by a marker in the same answer."""
        applied = self._quotas.find(QuotaKind.FETCH, self._user, self._client_id)
        if applied is None:
            return _UNLIMITED_BYTES
        return max(1, min(_UNLIMITED_BYTES, round(self._quotas.fetch_burst(applied))))

    def may_fetch(self) -> bool:
        """Whether anything may leave; otherwise the answer is to be empty, and the client waits."""
        applied = self._quotas.find(QuotaKind.FETCH, self._user, self._client_id)
        if applied is not None:
            self._wait(applied, self._quotas.seconds_of_debt(applied))
        return not self.throttle_ms

    def fetch(self, size_bytes: int) -> None:
        """Records are about to leave."""
        applied = self._quotas.find(QuotaKind.FETCH, self._user, self._client_id)
        if applied is not None:
            self._wait(applied, self._quotas.charge(applied, size_bytes))

    def mutate(self, count: int, *, is_strict: bool) -> None:
        """So many partitions are made or deleted. Raises when a strict client has to wait first."""
        applied = self._quotas.find(QuotaKind.MUTATION, self._user, self._client_id)
        if applied is None:
            return
        owed_seconds = self._quotas.seconds_of_debt(applied)
        if is_strict and owed_seconds > 0:
            self._wait(applied, owed_seconds)
            raise ThrottlingQuotaExceededError(
                f"controller_mutation_rate is exceeded; try again in {self.throttle_ms} ms"
            )
        owed_seconds = self._quotas.charge(applied, count)
        if not is_strict:
            self._wait(applied, owed_seconds)

    @property
    def owes_mutations(self) -> bool:
        """Whether the client has made or deleted more partitions than it may by now."""
        applied = self._quotas.find(QuotaKind.MUTATION, self._user, self._client_id)
        return applied is not None and self._quotas.seconds_of_debt(applied) > 0

    def note_mutations(self, count: int) -> None:
        """So many partitions were made on the client's behalf, which does not wait for it: it has
        to be heard again before its session ends."""
        applied = self._quotas.find(QuotaKind.MUTATION, self._user, self._client_id)
        if applied is not None:
            self._quotas.charge(applied, count)

    def charge_time(self) -> int:
        """Charge the time that was used; how long the client has to wait, in milliseconds."""
        applied = self._quotas.find(QuotaKind.REQUEST, self._user, self._client_id)
        if applied is not None:
            seconds = self._quotas.charge(applied, self._take_used() * _PERCENT)
            self._wait(applied, min(seconds, MOST_SECONDS_FOR_TIME))
        if self._applied is not None and not self._is_noted and self.throttle_ms:
            self._quotas.note_throttled(self._applied.account.kind, self.throttle_ms)
            self._is_noted = True
        return self.throttle_ms

    @property
    def waiting(self) -> WaitingClient | None:
        """The client, if it has to wait."""
        if self._applied is None:
            return None
        return WaitingClient(self._applied, self._user, self._client_id)

    def end(self) -> None:
        """The answer is on its way; what it took since is charged, too."""
        applied = self._quotas.find(QuotaKind.REQUEST, self._user, self._client_id)
        if applied is not None:
            self._quotas.charge(applied, self._take_used() * _PERCENT)

    def pause(self) -> None:
        """The request waits, and costs nothing meanwhile."""
        if self._began is not None:
            self._used += self._quotas.clock.monotonic() - self._began
            self._began = None

    def resume(self) -> None:
        self._began = self._quotas.clock.monotonic()

    def _take_used(self) -> float:
        if self._began is not None:
            self.pause()
            self.resume()
        used, self._used = self._used, 0.0
        return used

    def _wait(self, applied: AppliedQuota, seconds: float) -> None:
        throttle_ms = _milliseconds(seconds)
        if throttle_ms > self.throttle_ms:
            self.throttle_ms, self._applied, self._is_noted = throttle_ms, applied, False


class MutedConnection:
    """Takes no request of a client that exceeded a quota (QUO-3), until it owes nothing any more.

    When its quota is raised or removed meanwhile, it waits as long as the new one asks for.
    """

    __slots__ = ("_clock", "_connection", "_quotas", "_timer", "_until")

    def __init__(self, connection: Connection, services: Services) -> None:
        self._connection = connection
        self._clock = services.clock
        self._quotas = services.quotas
        self._timer: Timer | None = None
        self._until = 0.0

    def mute(self, throttle: RequestThrottle) -> None:
        """What was answered last counts: it knows of everything that is owed."""
        self._connection.mute()
        self._wait(throttle.throttle_ms / 1000)
        if throttle.waiting is not None:
            self._quotas.note_waiting(self._shorten, throttle.waiting)

    def end(self) -> None:
        """The connection is closed, or the client waits no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._quotas.forget_waiting(self._shorten)

    def _unmute(self) -> None:
        self.end()
        self._connection.unmute()

    def _shorten(self, seconds: float) -> None:
        if seconds <= 0:
            self._unmute()
        elif self._clock.monotonic() + seconds < self._until:
            self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._until = self._clock.monotonic() + seconds
        self._timer = self._clock.call_later(seconds, self._unmute)


def make_throttle(
    header: RequestHeader, size_bytes: int, connection: Connection, services: Services
) -> RequestThrottle | None:
    """The bill of a request that has come; None for one of another broker."""
    client_id = header.client_id or ""
    if client_id.startswith(_BROKER_PREFIX) and _is_broker(client_id, connection, services):
        return None
    throttle = RequestThrottle(services.quotas, connection.principal.name, client_id)
    if header.api_key == PRODUCE.key:
        throttle.produce(size_bytes)
    return throttle


def _is_broker(client_id: str, connection: Connection, services: Services) -> bool:
    """Whether a broker of this cluster asks, on the listener of brokers and under its name.

    Where clients use that listener, too, this believes what they say, as Kafka believes the replica
    id of a fetch: whoever does not trust them gives brokers a listener of their own.
    """
    number = client_id[len(_BROKER_PREFIX) :].removesuffix(_FETCHER_SUFFIX)
    brokers = services.image.brokers
    if not number.isdecimal() or BrokerId(int(number)) not in brokers:
        return False
    own = brokers.get(services.broker_id)
    return is_for_brokers(connection.listener_name, own, services.options)


class MeasuredWork(Awaitable[T]):
    """Work whose steps are charged, and not the time between them."""

    __slots__ = ("_throttle", "_work")

    def __init__(self, work: Awaitable[T], throttle: RequestThrottle) -> None:
        self._work = work
        self._throttle = throttle
        throttle.pause()

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        value: object = None
        error: BaseException | None = None
        while True:
            self._throttle.resume()
            try:
                waited_for = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._throttle.pause()
            value = error = None
            try:
                value = yield waited_for
            except BaseException as raised:  # noqa: BLE001 cancellation, too, is for the work
                error = raised


def _milliseconds(seconds: float) -> int:
    """As answers can tell it; a rate of next to nothing makes a debt for ever."""
    return round(min(seconds * 1000, _MOST_MILLISECONDS))


def connect_quotas(
    clock: Clock, options: Callable[[], BrokerOptions], publisher: MetadataPublisher
) -> ClientQuotas:
    def windows() -> QuotaWindows:
        now = options()
        return QuotaWindows(
            burst_seconds=now.quota_window_size_seconds,
            mutation_burst_seconds=(
                now.controller_quota_window_num * now.controller_quota_window_size_seconds
            ),
            fetch_burst_seconds=max(1, now.quota_window_num - 1) * now.quota_window_size_seconds,
        )

    quotas = ClientQuotas(clock, windows)

    def on_image(former: MetadataImage, image: MetadataImage, _: frozenset[str]) -> None:
        if image.quotas != former.quotas:
            quotas.apply(image.quotas)

    publisher.subscribe(on_image)
    return quotas
