"""One partition in one share group, at the partition's leader.

Reads the state through the share coordinator when it is asked for the first time, lets members
acquire records of the log, and has the coordinator store what becomes of them before anybody is
told (SHR-3). Changes that come while one is being stored are stored together with the next.

A shell, owned by the event loop: what it decides is in `rules.in_flight`. It is good for one leader
epoch and is thrown away with it; whoever leads next reads what was stored. A broker that loses its
session with the coordination store may lead on in the same epoch when it has a new session. So the
share partition is kept meanwhile: it delivers nothing, and takes acknowledgements, which the share
coordinator refuses from the moment in which another leader has read the state (SHR-11).

An administrator may alter the state while the group is empty. The leader does not hear of it, and a
member that was frozen or lost its machine keeps the share partition loaded. So when a member begins
to take from it, nothing is delivered until the state epoch has been compared (SHR-13).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from moldau.clock import Clock, Timer
from moldau.config.broker_options import BrokerOptions
from moldau.config.group_options import GroupConfigOptions, value_in_group
from moldau.config.option import OffsetReset, ResetTo
from moldau.coordinators.shares.dead_letters import DeadLetterSettings
from moldau.coordinators.shares.rules.in_flight import (
    AcknowledgedRange,
    AcknowledgeType,
    AcquiredRange,
    DeadRange,
    DeliveryChange,
    InFlight,
    Limits,
    LogBatch,
    Wanted,
    cut_to_log,
)
from moldau.coordinators.shares.rules.records import (
    NO_START_OFFSET,
    SharePartitionKey,
    ShareStateWrite,
    StateBatch,
    StoredShareState,
)
from moldau.errors import (
    CoordinatorNotAvailableError,
    FencedLeaderEpochError,
    FencedStateEpochError,
    KafkaError,
    LeaderNotAvailableError,
    NotLeaderError,
)
from moldau.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from moldau.replication.partition import Partition
from moldau.storage.file_records import walk_batches
from moldau.storage.files import FileSlice

_log = logging.getLogger("moldau.coordinators")

_MOST_READS: Final = 32
"""Of one fetch of one partition: released records may lie far from each other."""

_RETRY_SECONDS: Final = 1.0
"""How long a lock that is over waits when its end could not be stored."""

_FENCINGS: Final = (FencedStateEpochError, FencedLeaderEpochError)

Spawn = Callable[[str, Coroutine[Any, Any, None]], object]


class ShareRead(NamedTuple):
    """What a member gets of a partition: files to send, and which of their records it has."""

    slices: tuple[FileSlice, ...]
    ranges: tuple[AcquiredRange, ...]
    record_count: int
    size_bytes: int


_NOTHING: Final = ShareRead((), (), 0, 0)


class _Waiting(NamedTuple):
    """A change that is not stored yet, and who waits for it."""

    change: DeliveryChange
    stored: asyncio.Future[None] | None


class SharePartition:
    """See the module. `failure` is set when it is of no use any more."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        *,
        store: ShareStateStore,
        dead_letters: DeadLetters,
        clock: Clock,
        spawn: Spawn,
        settings: Callable[[], ShareSettings],
        refresh_settings: Callable[[], Awaitable[None]],
        on_rest: Callable[[SharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.failure: KafkaError | None = None
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._spawn = spawn
        self._settings = settings
        self._refresh_settings = refresh_settings
        self._on_rest = on_rest  # told when everything is read or stored, or could not be
        self._state_epoch = -1
        self._in_flight: InFlight | None = None  # None until it is loaded
        self._must_check = False  # whether the state is still of the epoch that was read
        self._is_checking = False
        self._waiting: list[_Waiting] = []
        self._is_writing = False
        self._letters_under_way = 0
        self._timer: Timer | None = None
        self._timer_at = math.inf  # when it fires: no lock is over before; infinity without one
        self._listeners: dict[Callable[[], None], None] = {}
        spawn(f"loading of {self}", self._load())

    def __str__(self) -> str:
        return f"{self.partition.topic_partition} in share group {self.key.group_id!r}"

    # Facts

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads, in the epoch in which the state was read."""
        partition = self.partition
        return (
            self.failure is None
            and partition.is_leader
            and partition.leader_epoch == self.leader_epoch
        )

    @property
    def is_over(self) -> bool:
        """Whether it has failed, or its leader epoch has ended here. Without a session with the
        store the epoch has not ended yet: if this broker leads the same epoch afterwards, there was
        no other leader (SHR-11)."""
        partition = self.partition
        if self.failure is not None or partition.leader_epoch != self.leader_epoch:
            return True
        return not partition.is_leader and not partition.state.is_suspended

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost without it: all is as it is stored, nothing is on its way, and
        nobody has a record; or it is of no use any more."""
        if self.failure is not None:
            return True
        is_busy = self._is_writing or self._waiting or self._letters_under_way
        if is_busy or self._in_flight is None:
            return False
        return self._in_flight.next_deadline() == math.inf

    @property
    def in_flight(self) -> InFlight | None:
        return self._in_flight

    def listen(self, listener: Callable[[], None]) -> None:
        """Have somebody called when there may be more to acquire, or it is of no use any more."""
        self._listeners[listener] = None

    def stop_listening(self, listener: Callable[[], None]) -> None:
        self._listeners.pop(listener, None)

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def _require_current(self) -> None:
        self._require_same_epoch()
        if not self.is_current:
            raise self._not_leader()

    def _require_same_epoch(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.is_over:
            raise self._not_leader()

    def _not_leader(self) -> NotLeaderError:
        return NotLeaderError(f"this broker does not lead {self.partition.topic_partition}")

    # Loading

    async def _load(self) -> None:
        failure: KafkaError = CoordinatorNotAvailableError(f"{self} was not read")
        try:
            stored = await self._store.read(self.key, self.leader_epoch)
            start_offset = await self._start_at(stored)
            start_offset, batches = await self._fit_to_log(stored, start_offset)
            self._require_same_epoch()
            self._state_epoch = stored.state_epoch
            self._in_flight = InFlight(start_offset, batches)
            self._in_flight.forget_before(self.partition.log.log_start_offset)
            self._notify()
        except KafkaError as error:
            failure = _as_told(error)
        finally:
            if self._in_flight is None:
                self.fail(failure)
            self._on_rest(self)  # the last member may have gone meanwhile

    async def _start_at(self, stored: StoredShareState) -> int:
        """Where the group begins. A group that begins at the end is not to begin at another end
        after a failover, so that is stored first (SHR-7). Its settings are read again before: a
        change that another broker has confirmed may not be known here yet."""
        if stored.start_offset != NO_START_OFFSET:
            return stored.start_offset
        await self._refresh_settings()
        timestamp_ms = self._settings().first_timestamp_ms(self._clock.now_ms())
        found = await self.partition.find_offset(timestamp_ms, read_committed=False)
        start = found.offset if found.offset >= 0 else self.partition.high_watermark
        write = ShareStateWrite(stored.state_epoch, self.leader_epoch, start, 0, ())
        await self._store.write(self.key, write)
        return start

    async def _fit_to_log(
        self, stored: StoredShareState, start_offset: int
    ) -> tuple[int, tuple[StateBatch, ...]]:
        """What is stored, without what the log has lost; then that is stored first (SHR-7)."""
        end_offset = self.partition.log.log_end_offset
        cut = cut_to_log(start_offset, stored.state_batches, end_offset)
        if cut.rewritten or cut.start_offset < start_offset:
            _log.warning(
                "%s has a state behind offset %d, where the log ends: records were lost, and what "
                "comes in their place is delivered",
                self,
                end_offset,
            )
            epochs = stored.state_epoch, self.leader_epoch
            fitting = ShareStateWrite(*epochs, cut.start_offset, cut.complete_count, cut.rewritten)
            await self._store.write(self.key, fitting)
        return cut.start_offset, cut.batches

    def require_check(self) -> None:
        """A member begins to take from here: deliver nothing until `check_soon` has found that
        nobody altered the state (SHR-13)."""
        self._must_check = True

    def check_soon(self) -> None:
        """Compare the state epoch, if that has to be done and is not under way."""
        if self._must_check and not self._is_checking and self._in_flight is not None:
            self._is_checking = True
            self._spawn(f"checking of {self}", self._check())

    async def _check(self) -> None:
        self._must_check = False  # a member that begins meanwhile has it checked once more
        try:
            stored = await self._store.read(self.key, self.leader_epoch)
            if stored.state_epoch != self._state_epoch:
                self.fail(FencedStateEpochError(f"the state of {self} was altered"))
        except CoordinatorNotAvailableError:
            self._must_check = True  # with the next fetch
        except KafkaError as error:
            self.fail(_as_told(error))
        finally:
            self._is_checking = False
        self._notify()

    def fail(self, error: KafkaError) -> None:
        """It is of no use any more; who waits is told."""
        if self.failure is not None:
            return
        self.failure = error
        self._cancel_timer()
        waiting, self._waiting = self._waiting, []
        for _, stored in waiting:
            _refuse(stored, error)
        self._notify()

    # Acquiring

    def size_available(self, max_bytes: int) -> int:
        """How many bytes there are to be acquired at once, as far as `max_bytes` matter."""
        offset = self._find_offset()
        if offset is None:
            return 0
        read = self.partition.read(
            offset,
            max_bytes,
            read_committed=self._settings().read_committed,
            min_one=True,
        )
        return 0 if read.records is None else read.records.length

    def acquire(self, member: str, wanted: Wanted, max_bytes: int, *, min_one: bool) -> ShareRead:
        """Give a member records that nobody else has; with `min_one`, a batch that is larger than
        the limit, too."""
        self._require_current()
        if not self.partition.holds_lease:  # somebody else may lead, and have had them accepted
            raise NotLeaderError(
                f"this broker's lease on leading {self.partition.topic_partition} is over"
            )
        in_flight = self._in_flight
        if in_flight is None:
            return _NOTHING
        now, limits = self._clock.monotonic(), self._settings().limits
        slices: list[FileSlice] = []
        ranges: list[AcquiredRange] = []
        count = size_bytes = 0
        for _ in range(_MOST_READS):
            offset = self._find_offset()
            if offset is None:
                break
            window = self._read(offset, max_bytes - size_bytes, min_one and not size_bytes)
            if window is None:
                break
            left = wanted._replace(max_records=wanted.max_records - count)
            got = in_flight.acquire(member, offset, window.batches(), left, limits, now)
            ranges += got.ranges
            count += got.record_count
            for batch in got.batches:
                size_bytes += batch.size_bytes
                _add(slices, FileSlice(window.records.file, batch.position, batch.size_bytes))
            if got.is_complete or got.next_offset == offset:
                break
        if ranges:
            self._arm_for(now + limits.lock_seconds)
            self.partition.traffic.bytes_out += size_bytes
            self.partition.traffic.records_out += count
        return ShareRead(tuple(slices), tuple(ranges), count, size_bytes)

    def _find_offset(self) -> int | None:
        """Where there is something to acquire; None when there is not."""
        in_flight, partition = self._in_flight, self.partition
        if in_flight is None or self._must_check or self._is_checking:
            return None
        in_flight.forget_before(partition.log.log_start_offset)
        settings = self._settings()
        offset = in_flight.find_available()
        committed = settings.read_committed
        end = partition.last_stable_offset if committed else partition.high_watermark
        if offset >= end:
            return None
        if offset >= in_flight.end_offset and not in_flight.has_room(settings.limits):
            return None
        return offset

    def _read(self, offset: int, max_bytes: int, min_one: bool) -> _Window | None:
        read_committed = self._settings().read_committed
        partition = self.partition
        read = partition.read(offset, max_bytes, read_committed=read_committed, min_one=min_one)
        if read.records is None:
            return None
        return _Window(partition, offset, read.records, read_committed)

    # What becomes of records

    def acknowledge(
        self, member: str, ranges: Sequence[AcknowledgedRange]
    ) -> Awaitable[None] | None:
        """None when there is nothing to wait for; raises when a record is not the member's."""
        self._require_same_epoch()
        if self._in_flight is None:
            raise LeaderNotAvailableError(f"the state of {self} is being read")
        now, limits = self._clock.monotonic(), self._settings().limits
        change = self._in_flight.acknowledge(member, ranges, limits, now)
        if any(one.type is AcknowledgeType.RENEW for one in ranges):
            self._arm_for(now + limits.lock_seconds)
        if change.is_empty:
            return None
        return self._store_change(change)

    def release(self, member: str) -> None:
        """The member has gone, or closes its session."""
        if self._in_flight is None or self.is_over:
            return
        change = self._in_flight.release(member, self._settings().limits)
        if not change.is_empty:
            self._store_soon(_Waiting(change, None))
            self._notify()

    def _expire(self) -> None:
        self._timer, self._timer_at = None, math.inf
        if self._in_flight is None or self.is_over:
            return
        change = self._in_flight.expire(self._clock.monotonic(), self._settings().limits)
        if not change.is_empty:
            self._store_soon(_Waiting(change, None))
            self._notify()
        self._arm()

    def _arm(self, not_before: float = -math.inf) -> None:
        """Have the next lock end in time."""
        if self._in_flight is not None:
            self._arm_for(max(self._in_flight.next_deadline(), not_before))

    def _arm_for(self, deadline: float) -> None:
        """Locks that end by then are new. They may end before all others: the group may have
        lowered its time since."""
        if deadline < self._timer_at and self.failure is None:
            self._cancel_timer()
            seconds = max(0.0, deadline - self._clock.monotonic())
            self._timer = self._clock.call_later(seconds, self._expire)
            self._timer_at = deadline

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf

    # Storing

    def _store_change(self, change: DeliveryChange) -> Awaitable[None]:
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store_soon(_Waiting(change, stored))
        return asyncio.shield(stored)  # who gives up waiting does not undo it

    def _store_soon(self, waiting: _Waiting) -> None:
        """Have a change stored, and before it, if the group wants that, written down elsewhere
        what comes to its end."""
        if waiting.change.dead and self._settings().dead_letters.topic:
            self._letters_under_way += 1
            self._spawn(f"dead letters of {self}", self._send_letters(waiting))
        else:
            self._enqueue(waiting)

    async def _send_letters(self, waiting: _Waiting) -> None:
        group_id, dead = self.key.group_id, waiting.change.dead
        failure: KafkaError | None = CoordinatorNotAvailableError(f"{self} was not stored")
        try:
            await self._dead_letters.send(
                group_id, self.partition, dead, self._settings().dead_letters
            )
            failure = self.failure
        except KafkaError as error:
            _log.warning("dead letters of %s could not be written: %s", self, error)
            failure = error
        finally:
            self._letters_under_way -= 1
            if failure is not None:
                self._take_back((waiting,), failure)
        if failure is None:
            self._enqueue(waiting)

    def _take_back(self, together: Sequence[_Waiting], error: KafkaError) -> None:
        """Nothing of it counts; locks that are over are looked at again, after a pause, so that
        their records do not wait for ever (SHR-9)."""
        for change, stored in together:
            if self._in_flight is not None:
                self._in_flight.take_back(change)
            _refuse(stored, error)
        self._arm(self._clock.monotonic() + _RETRY_SECONDS)

    def _enqueue(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if not self._is_writing:
            self._is_writing = True
            self._spawn(f"storing of {self}", self._write())

    async def _write(self) -> None:
        together: list[_Waiting] = []
        try:
            while self._waiting and self._in_flight is not None:
                together, self._waiting = self._waiting, []
                await self._write_together(self._in_flight, together)
                together = []
        finally:
            self._is_writing = False
            left, self._waiting = [*together, *self._waiting], []
            if left:  # the broker ends, or something failed that should not
                self._take_back(left, CoordinatorNotAvailableError(f"{self} was not stored"))
        self._on_rest(self)

    async def _write_together(self, in_flight: InFlight, together: Sequence[_Waiting]) -> None:
        changes = [change for change, _ in together]
        plan = in_flight.plan_write(changes)
        try:
            await self._store.write(
                self.key, ShareStateWrite(self._state_epoch, self.leader_epoch, *plan)
            )
        except KafkaError as error:
            told = _as_told(error)
            self._take_back(together, told)
            if isinstance(error, _FENCINGS):
                self.fail(told)
            else:
                _log.warning("the state of %s could not be stored: %s", self, error)
            return
        for change in changes:
            in_flight.complete(change)
        for _, stored in together:
            if stored is not None and not stored.done():
                stored.set_result(None)
        self._notify()


class _Window(NamedTuple):
    """A part of the log, from the batch that holds an offset on."""

    partition: Partition
    offset: int
    records: FileSlice
    read_committed: bool

    def batches(self) -> Iterator[LogBatch]:
        """Batch by batch, as far as somebody looks: headers are read, records are not. A group that
        reads committed records gets none of an aborted transaction (SHR-12)."""
        file, start, length = self.records
        log = self.partition.log
        for position, header in walk_batches(file, start, start + length):
            if header.last_offset < self.offset:
                continue
            is_hidden = header.is_control or not header.record_count
            if self.read_committed and header.is_transactional and not is_hidden:
                is_hidden = any(
                    aborted.producer_id == header.producer_id
                    and aborted.first_offset <= header.base_offset <= aborted.last_offset
                    for aborted in log.aborted_transactions(header.base_offset, header.next_offset)
                )
            yield LogBatch(
                header.base_offset, header.last_offset, position, header.size_bytes, is_hidden
            )


def _add(slices: list[FileSlice], new: FileSlice) -> None:
    """Neighbours in one file are sent as one."""
    if slices:
        file, position, length = slices[-1]
        if file is new.file and position + length == new.position:
            slices[-1] = FileSlice(file, position, length + new.length)
            return
    slices.append(new)


def _refuse(stored: asyncio.Future[None] | None, error: KafkaError) -> None:
    if stored is not None and not stored.done():
        stored.set_exception(error)
        stored.exception()  # seen: whoever waited may have gone


def _as_told(error: KafkaError) -> KafkaError:
    """What a client hears of an error of the store, as in Kafka: the leader that was fenced by
    another one is none."""
    if isinstance(error, FencedLeaderEpochError):
        return NotLeaderError(str(error))
    return error


# The shapes are those of ReadShareGroupState and WriteShareGroupState (KIP-932). Whoever implements
# the port finds the share coordinator of a key, which may be this broker, asks it, and tries again
# while it moves or loads, within `request.timeout.ms`. What remains is raised:
#
# - FencedStateEpochError   the group's state was made anew, or deleted, since it was read
# - FencedLeaderEpochError  somebody with a higher leader epoch has read or written the state
# - UnknownTopicError       the topic, or its state in the group, does not exist (any more)
# - GroupNotFoundError      there is no such group
# - CoordinatorNotAvailableError  nobody could be asked, or the answer did not come in time
#
# A port.


class ShareStateStore(Protocol):
    """The state of share partitions, behind their share coordinators."""

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> StoredShareState:
        """The state as it is stored. From now on, writes of lower leader epochs are refused."""
        ...

    async def write(self, key: SharePartitionKey, change: ShareStateWrite) -> None:
        """Return when the change is committed; an error other than a fencing may have left it
        written."""
        ...


class DeadLetters(Protocol):
    """Where records go that come to their end without having been accepted (KIP-1191)."""

    async def send(
        self,
        group_id: str,
        source: Partition,
        dead: Sequence[DeadRange],
        settings: DeadLetterSettings,
    ) -> None:
        """Return when there is a letter for each record, or there cannot be one; raises a
        KafkaError when it may be tried again."""
        ...


_READ_COMMITTED = "read_committed"
_READ_UNCOMMITTED = "read_uncommitted"


class ShareSettings(NamedTuple):
    """Of one group."""

    limits: Limits = Limits()
    read_committed: bool = False
    start: OffsetReset = OffsetReset(ResetTo.LATEST)  # in a partition that was not read yet
    may_renew: bool = True
    dead_letters: DeadLetterSettings = DeadLetterSettings()

    @property
    def lock_ms(self) -> int:
        return round(self.limits.lock_seconds * 1000)

    def first_timestamp_ms(self, now_ms: int) -> int:
        """From when on the group wants records: a time, or one of ListOffsets' special ones."""
        if self.start.to is ResetTo.DURATION:
            return now_ms - self.start.duration_ms
        return EARLIEST_TIMESTAMP if self.start.to is ResetTo.EARLIEST else LATEST_TIMESTAMP


def share_settings(group: Mapping[str, str], broker: BrokerOptions) -> ShareSettings:
    """Of a group that has set these texts."""
    options = GroupConfigOptions
    lock_ms = value_in_group(
        options.share_record_lock_duration_ms, group, broker.group_share_record_lock_duration_ms
    )
    isolation = value_in_group(options.share_isolation_level, group, _READ_UNCOMMITTED)
    return ShareSettings(
        Limits(
            value_in_group(
                options.share_partition_max_record_locks,
                group,
                broker.group_share_partition_max_record_locks,
            ),
            value_in_group(
                options.share_delivery_count_limit, group, broker.group_share_delivery_count_limit
            ),
            lock_ms / 1000,
        ),
        isolation == _READ_COMMITTED,
        value_in_group(options.share_auto_offset_reset, group, OffsetReset(ResetTo.LATEST)),
        value_in_group(options.share_renew_acknowledge_enable, group, True),
        DeadLetterSettings(
            value_in_group(options.errors_deadletterqueue_topic_name, group, ""),
            value_in_group(options.errors_deadletterqueue_copy_record_enable, group, False),
        ),
    )
