"""A connection from this broker to another one: whole frames out, their answers in.

It answers for connecting, for the pause between two attempts, for correlation ids and for the end
of every wait. It does not know what the frames mean, and never sends one twice: whether a request
may be repeated is for those who know it.

A shell, used by the tasks of one loop, which take turns: one request at a time is under way. A
request that goes unanswered for too long, or whose caller is gone, ends the connection, because
every later answer would queue behind it; the next request opens another. So does the news that the
broker has left the cluster, or moved: one that is paused or cut off would be waited for although
others have its place by now.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from moldau.clock import Clock, Interruption, Timer, WorkInterrupted, finish_within
from moldau.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    NoAnswerError,
    SaslAuthenticationError,
    TlsHandshakeError,
    UnsupportedSaslMechanismError,
)
from moldau.net.port import Channel, Chunk, Network

REFUSALS: Final = (SaslAuthenticationError, UnsupportedSaslMechanismError, TlsHandshakeError)
"""The other broker does not believe us, or we do not believe it. Somebody may mend that."""
_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_AT: Final = 8
"""In a request: length int32, API key int16, version int16, and then the correlation id."""
_MAX_CORRELATION_ID: Final = 0x7FFFFFFF
_LOOK_SECONDS: Final = 1.0
"""So often is looked whether the broker that has to answer is still where it was."""


class PeerAddress(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int


class PeerSettings(NamedTuple):
    """How long a connection waits."""

    connect_seconds: float = 5.0
    first_backoff_seconds: float = 0.05
    most_backoff_seconds: float = 1.0


class Peer:
    """The way to one broker. `ask` as often as needed, `close` once.

    `find_address` is asked before every request: a broker that moved is reached at its new place,
    and None means that it is not there at the moment.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        find_address: Callable[[], PeerAddress | None],
        *,
        name: str,
        settings: PeerSettings | None = None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._find_address = find_address
        self._name = name
        self._settings = settings or PeerSettings()
        self._turn = asyncio.Lock()
        self._channel: Channel | None = None
        self._address: PeerAddress | None = None  # where the channel leads to
        self._next_correlation_id = 0
        self._failures = 0  # in a row
        self._not_before = 0.0  # monotonic seconds; the next attempt to connect
        self._waiting: Interruption | None = None  # of the request that is under way
        self._look: Timer | None = None  # outlives requests: most of them need no look
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._channel is not None

    async def ask(self, frame: Sequence[Chunk], *, timeout_seconds: float) -> memoryview:
        """Send a whole request, its length in front, and wait for the frame of the answer.

        The correlation id in the frame is replaced. Raises `BrokerUnreachableError` when surely
        nothing was sent, `ConnectionLostError` and `NoAnswerError` when something may have been.
        """
        try:
            return await finish_within(self._ask(frame), self._clock, timeout_seconds)
        except TimeoutError:
            raise NoAnswerError(f"{self._name} gave no answer in {timeout_seconds:g} s") from None

    async def close(self) -> None:
        """End the connection; whoever waits for an answer hears of it."""
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()
        await self._hang_up()

    async def _ask(self, frame: Sequence[Chunk]) -> memoryview:
        async with self._turn:
            channel = await self._open()
            correlation_id = self._next_correlation_id
            self._next_correlation_id = (correlation_id + 1) & _MAX_CORRELATION_ID
            waiting = self._waiting = Interruption()
            if self._look is None:
                self._look_later()
            try:
                answer = await waiting.run(_exchange(channel, _stamp(frame, correlation_id)))
            except WorkInterrupted:
                await self._hang_up()
                raise ConnectionLostError(f"{self._name} has left or moved") from None
            except OSError as error:
                await self._hang_up()
                self._back_off()
                raise ConnectionLostError(
                    f"lost the connection to {self._name}: {error}"
                ) from error
            except BaseException:  # cancelled: the answer would come in the middle of the next one
                await self._hang_up()
                raise
            finally:
                self._waiting = None
            if not _answers(answer, correlation_id):
                await self._hang_up()
                self._back_off()
                raise ConnectionLostError(f"{self._name} answered something else")
            self._failures = 0
            return answer

    def _look_later(self) -> None:
        self._look = self._clock.call_later(_LOOK_SECONDS, self._look_now)

    def _look_now(self) -> None:
        """Nobody waits for an answer of a broker that is not there any more."""
        self._look = None
        if self._waiting is None or self._is_closed:
            return
        if self._find_address() == self._address:
            self._look_later()
        else:
            self._waiting.request()

    async def _open(self) -> Channel:
        address = self._find_address()
        if self._channel is not None and address == self._address and not self._is_closed:
            return self._channel
        await self._hang_up()
        pause_seconds = self._not_before - self._clock.monotonic()
        if pause_seconds > 0:
            await self._clock.sleep(pause_seconds)
            address = self._find_address()
        if self._is_closed or address is None:
            raise BrokerUnreachableError(f"{self._name} is not there")
        return await self._connect(address)

    async def _connect(self, address: PeerAddress) -> Channel:
        timeout_seconds = self._settings.connect_seconds
        try:
            channel = await self._network.connect(
                address.host, address.port, timeout=timeout_seconds
            )
        except (OSError, *REFUSALS) as error:  # TimeoutError is one, and says nothing
            self._back_off()
            reason = str(error) or f"no answer in {timeout_seconds:g} s"
            raise BrokerUnreachableError(f"cannot connect to {self._name}: {reason}") from error
        if self._is_closed:
            await channel.close()
            raise BrokerUnreachableError(f"{self._name} is not needed any more")
        self._channel, self._address = channel, address
        return channel

    def _back_off(self) -> None:
        first, most = self._settings.first_backoff_seconds, self._settings.most_backoff_seconds
        seconds = min(most, first * 2 ** min(self._failures, 20))
        self._failures += 1
        self._not_before = self._clock.monotonic() + seconds

    async def _hang_up(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with contextlib.suppress(OSError):
                await channel.close()


async def _exchange(channel: Channel, frame: Sequence[Chunk]) -> memoryview:
    await channel.send(frame)
    return memoryview(await channel.receive())


def _stamp(frame: Sequence[Chunk], correlation_id: int) -> list[Chunk]:
    """The frame with this correlation id; its first chunk holds the whole header."""
    first, *rest = frame
    if not isinstance(first, bytes | bytearray | memoryview):
        raise TypeError("a request begins with the bytes of its header")
    head = bytearray(first)
    _CORRELATION_ID.pack_into(head, _CORRELATION_ID_AT, correlation_id)
    return [head, *rest]


def _answers(answer: memoryview, correlation_id: int) -> bool:
    size = _CORRELATION_ID.size
    return len(answer) >= size and _CORRELATION_ID.unpack_from(answer)[0] == correlation_id
