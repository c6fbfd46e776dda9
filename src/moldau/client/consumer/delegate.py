"""What both faces of the consumer have inside: the machine, and the shells that work for it.

`AsyncConsumer` runs it on its user's loop, `Consumer` on a loop in a thread of its own. Whatever
happens, happens to the machine (`rules.machine`) in a turn; what it wants done then goes to
`fetcher`, to `coordinator`, to a timer, or to the program. Everything here belongs to one loop.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Final, TypeAlias

from moldau.client.cluster import ClusterClient, client_settings
from moldau.client.connections import ConnectionPool
from moldau.client.consumer.coordinator import ConsumerCoordinator, make_member_id
from moldau.client.consumer.fetcher import Fetcher
from moldau.client.consumer.rules.assignors import Assignor, require_assignor
from moldau.client.consumer.rules.fetch_buffer import (
    ConsumerRecord,
    Decoding,
    GivenDeserializer,
    Position,
    require_deserializers,
)
from moldau.client.consumer.rules.instructions import (
    ArmTimer,
    ConsumerInstruction,
    ConsumerTimer,
    Fetch,
    FinishCommit,
    LearnTopics,
    LookUpOffsets,
    OffsetsToCommit,
    PartitionSet,
    Refresh,
    Validate,
    WriteLog,
)
from moldau.client.consumer.rules.machine import ConsumerMachine, Turns
from moldau.client.consumer.rules.offset_manager import CommitMode
from moldau.client.consumer.rules.rebalance_listener import ListenerCall, RebalanceEvent
from moldau.client.consumer.rules.subscription_state import ConsumerStream
from moldau.client.rules.arguments import (
    require_by_partition,
    require_function,
    require_kind,
    require_list,
    require_partitions,
    require_whole,
    wrong_type,
)
from moldau.client.rules.cluster_metadata import parse_bootstrap
from moldau.client.rules.offsets import GroupOffset
from moldau.clock import Clock, SystemClock, Timer, finish_within
from moldau.config.client_options import ConsumerOptions
from moldau.errors import (
    ClientError,
    ClosedClientError,
    ConfigurationError,
    NotAssignedError,
    OperationTimeoutError,
)
from moldau.model import TopicPartition
from moldau.net.port import Network
from moldau.net.sockets import SocketNetwork
from moldau.tasks import TaskSupervisor

_log = logging.getLogger("moldau.consumer")


class ConsumerDelegate:
    """One consumer without its face."""

    def __init__(
        self,
        bootstrap: str,
        options: ConsumerOptions,
        *,
        group_id: str | None,
        commit_mode: CommitMode,
        assignors: Sequence[Assignor],
        listeners: Mapping[RebalanceEvent, RebalanceListener],
        decoding: Decoding,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self.attention = True  # the machine's, for faces in other threads
        self._listener_failures: list[Exception] = []  # since it closes
        self._armed: dict[object, Timer] = {}
        self._wakeups = Wakeups(self.clock)
        self._tasks = TaskSupervisor(self._on_task_failure)
        network = network or SocketNetwork(self.clock)
        settings = client_settings(options, timeout_ms=options.default_api_timeout_ms)
        self.client = ClusterClient(
            bootstrap, settings, network=network, clock=self.clock, random=random
        )
        self._fetch_pool = ConnectionPool(
            parse_bootstrap(bootstrap), network, self.clock, settings.connection
        )
        self.machine = ConsumerMachine(
            options,
            group_id=group_id,
            commit_mode=commit_mode,
            assignors=assignors,
            member_id=self._make_member_id(),
            listened_to=listeners.keys(),
            decoding=decoding,
            backoff=settings.backoff,
            chance=self.client.random.random,
            now=self.clock.monotonic(),
        )
        self.turns = _Turns(self)
        self._commits = AwaitedCommits(
            self.turns, self.clock, options.default_api_timeout_ms / 1000
        )
        self.listener_invoker = ListenerInvoker(
            self.machine, self.turns, listeners, self._on_listener_failure
        )
        self._fetcher = Fetcher(self.client, self._fetch_pool, options, self._tasks, self.turns)
        self._coordinator: ConsumerCoordinator | None = None
        if group_id is not None:
            self._coordinator = ConsumerCoordinator(
                self.client, network, group_id, options, self._tasks, self.turns
            )

    def _make_member_id(self) -> str:
        """In the classic protocol the coordinator does."""
        is_classic = self.options.group_protocol == "classic"
        return "" if is_classic else make_member_id(self.client.random)

    # Instructions

    def end_turn(self) -> None:
        """Do what the machine wants done."""
        instructions, wakes_program = self.machine.end_turn()
        self.attention = self.machine.attention
        for instruction in instructions:
            self._perform(instruction)
        if wakes_program:
            self._wakeups.wake_waiters()

    def _perform(self, instruction: ConsumerInstruction) -> None:
        match instruction:
            case Fetch() | Refresh() | LookUpOffsets() | Validate() | LearnTopics():
                self._fetcher.perform(instruction)
            case ArmTimer(timer, seconds):
                self._arm_timer(timer, seconds)
            case WriteLog(is_warning, message):
                _log.log(logging.WARNING if is_warning else logging.INFO, "%s", message)
            case FinishCommit(commit_id, failure):
                self._commits.finish(commit_id, failure)
            case _:
                self.require_coordinator().perform(instruction)

    def require_coordinator(self) -> ConsumerCoordinator:
        if self._coordinator is None:
            raise ConfigurationError("a consumer without a group has no committed offsets")
        return self._coordinator

    def _arm_timer(self, timer: ConsumerTimer, seconds: float) -> None:
        key = object()

        def fire() -> None:
            del self._armed[key]
            with self.turns as machine:
                machine.timer_fired(timer)

        self._armed[key] = self.clock.call_later(seconds, fire)

    # What the program wants to read

    async def unsubscribe(self, run_call: RunInvocation) -> None:
        """Give everything up and leave the group."""
        self.listener_invoker.require_outside()
        with self.turns as machine:
            machine.unsubscribe()
        await self._leave("the consumer has unsubscribed", run_call)
        with self.turns as machine:
            machine.release_all()

    # The program polls

    async def wait_for_records(
        self, stream: ConsumerStream, run_call: RunInvocation, timeout_seconds: float
    ) -> None:
        """The program has dealt with all that this stream gave it, and wants more.

        Over when there is something to take, or time is up. Raises what the program has to know.
        """
        deadline = self.clock.monotonic() + timeout_seconds
        self._require_open(stream)
        try:
            seen = self._wakeups.count
            with self.turns as machine:
                machine.begin_poll(stream)
                is_served = machine.prepare_poll(stream)
            while True:
                if not is_served:
                    await self.listener_invoker.make(run_call)
                    self._require_open(stream)
                    with self.turns as machine:
                        machine.fill_buffer(stream)
                left = deadline - self.clock.monotonic()
                if stream.buffer.has_more or left <= 0:
                    return
                await self._wakeups.wait_for_next(seen, left)
                seen = self._wakeups.count
                self._require_open(stream)
                with self.turns as machine:
                    is_served = machine.prepare_poll(stream)
        finally:
            with self.turns as machine:
                machine.end_poll(stream)

    # Positions

    async def wait_for_position(
        self, partition: TopicPartition, timeout_seconds: float
    ) -> Position:
        """The position, looked up first if it has to be."""
        deadline = self.clock.monotonic() + timeout_seconds
        with self.turns as machine:
            machine.start_fetching()
        while (found := self.machine.streams.position(partition)) is None:
            left = deadline - self.clock.monotonic()
            if left <= 0:
                raise OperationTimeoutError(
                    f"where to begin in {partition} was not found out within "
                    f"{timeout_seconds:g} seconds"
                )
            self._require_open()
            seen = self._wakeups.count
            with self.turns as machine:
                machine.raise_failures()
                machine.want_positions()
            await self._wakeups.wait_for_next(seen, left)
        return found

    async def find_offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> Mapping[TopicPartition, int]:
        """By timestamp, or EARLIEST or LATEST."""
        wanted = dict.fromkeys(require_partitions(partitions), timestamp)
        found = await self._fetcher.find_offsets(wanted)
        return {partition: position.offset for partition, position in found.items()}

    # Commits

    async def commit(self, offsets: OffsetsToCommit | None, timeout_seconds: float | None) -> None:
        wanted = self.given_offsets() if offsets is None else offsets
        epochs = self.machine.subscriptions.find_epochs(wanted)
        await self._commits.commit(wanted, timeout_seconds)
        # What the program commits it has dealt with: nothing may commit less later, unless the
        # position was moved meanwhile.
        self.machine.subscriptions.advance_at_least(
            {
                partition: Position(wanted[partition].offset, wanted[partition].leader_epoch)
                for partition, epoch in self.machine.subscriptions.find_epochs(wanted).items()
                if epochs.get(partition) == epoch
            }
        )

    def given_offsets(self) -> dict[TopicPartition, GroupOffset]:
        """Behind all that the program was given."""
        return {
            partition: GroupOffset(offset=position.offset, leader_epoch=position.leader_epoch)
            for partition, position in self.machine.streams.given_positions().items()
        }

    async def commit_positions(self, positions: Mapping[TopicPartition, Position]) -> None:
        """At most once: what is about to be given counts as dealt with."""
        moved = self.machine.require_commits().find_moved(positions)
        if moved:
            await self._commits.commit(moved)

    # Ends

    async def close(
        self, timeout_seconds: float, *, has_failed: bool, run_call: RunInvocation
    ) -> None:
        """Commit what was dealt with, give the partitions up, leave, and end everything."""
        if self.machine.is_closed:
            return
        self.listener_invoker.require_outside()
        with self.turns as machine:
            machine.close(has_failed=has_failed)
        try:
            leaving = self._leave("the consumer was closed", run_call)
            try:
                await finish_within(leaving, self.clock, timeout_seconds)
            except TimeoutError:
                _log.warning("leaving the group took longer than %g seconds", timeout_seconds)
        finally:
            await self._end()
        if self._listener_failures and not has_failed:  # else that is what the program hears of
            raise self._listener_failures[0]

    async def _leave(self, reason: str, run_call: RunInvocation) -> None:
        """The program's functions are called while it waits here."""
        longest_call_seconds = self.options.max_poll_interval_ms / 1000
        with self.turns as machine:
            machine.leave(reason)
        while not machine.has_left:
            seen = self._wakeups.count
            await self.listener_invoker.make(run_call)
            if not machine.has_left:
                await self._wakeups.wait_for_next(seen, longest_call_seconds)

    async def _end(self) -> None:
        for armed in self._armed.values():
            armed.cancel()
        await self._tasks.close()
        self._commits.fail_all(ClosedClientError("the consumer is closed"))
        if self._coordinator is not None:
            await self._coordinator.close()
        await self._fetch_pool.close()
        await self.client.close()

    def _require_open(self, stream: ConsumerStream | None = None) -> None:
        if self.machine.is_closed:
            raise ClosedClientError("the consumer is closed")
        if stream is not None and stream.is_retired:
            raise ClosedClientError("the stream is closed")

    def _on_listener_failure(self, error: Exception) -> None:
        if self.machine.is_closed:
            _log.warning("a function for rebalances has failed: %r", error)
            self._listener_failures.append(error)
        else:
            self._raise_later(error)

    def _on_task_failure(self, name: str, error: BaseException) -> None:
        _log.error("the task %r of the consumer has failed", name, exc_info=error)
        self._raise_later(error if isinstance(error, Exception) else ClientError(str(error)))

    def _raise_later(self, error: Exception) -> None:
        with self.turns as machine:
            machine.raise_later(error)


class _Turns:
    """`with turns as machine:` an event happens; afterwards the shells do what the machine wants.

    Nothing may be awaited inside.
    """

    __slots__ = ("_delegate",)

    def __init__(self, delegate: ConsumerDelegate) -> None:
        self._delegate = delegate

    def __enter__(self) -> ConsumerMachine:
        clock, machine = self._delegate.clock, self._delegate.machine
        cluster = self._delegate.client.metadata.current
        machine.begin_turn(clock.monotonic(), clock.now_ms(), cluster)
        return machine

    def __exit__(self, *_: object) -> None:
        self._delegate.end_turn()


# Calls of the program's functions, made where the program is. The machine wants the program to hear
# of something; the program may be in another thread, and busy. So calls wait until it polls.


INSIDE_A_CALL: Final = (
    "a function for rebalances can neither ask for records nor close the consumer"
)

RebalanceListener: TypeAlias = Callable[[PartitionSet], object]
"""A function of the program's; what it gives back is awaited by an AsyncConsumer if it can be."""


class ListenerInvocation:
    """One call; `finish` is called on the loop when it was made."""

    def __init__(self, call: ListenerCall, listener: RebalanceListener) -> None:
        self.call = call
        self.listener = listener
        self.partitions = call.partitions
        self.maker: asyncio.Task[object] | None = None  # has it made, once it is begun
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


RunInvocation: TypeAlias = Callable[[ListenerInvocation], Awaitable[None]]
"""Makes a call where the program is, or has it made there."""


class ListenerInvoker:
    """Makes the calls of one consumer."""

    def __init__(
        self,
        machine: ConsumerMachine,
        turns: Turns,
        listeners: Mapping[RebalanceEvent, RebalanceListener],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._machine = machine
        self._turns = turns
        self._listeners = listeners
        self._on_failure = on_failure
        self._current: ListenerInvocation | None = None

    async def make(self, run_call: RunInvocation) -> None:
        """The program is here: have all calls made. Nothing else is done for it meanwhile."""
        while (call := self._machine.next_listener_call()) is not None:
            current = self._current
            if current is None or current.call is not call:
                current = self._current = ListenerInvocation(call, self._listeners[call.event])
                current.done.add_done_callback(self._on_done)
            try:
                if not call.is_begun:
                    self._machine.mark_call_begun(call)
                    current.maker = asyncio.current_task()
                    await run_call(current)
                await asyncio.wait((current.done,))
            except asyncio.CancelledError:
                self._machine.mark_call_begun(call, is_begun=False)  # for whoever polls next
                raise

    def require_outside(self) -> None:
        """Raises when it is one of the program's functions that asks: it would wait for itself."""
        current = self._current
        if current is not None and current.maker is asyncio.current_task():
            raise ConfigurationError(INSIDE_A_CALL)

    def _on_done(self, done: asyncio.Future[None]) -> None:
        current, self._current = self._current, None
        if current is None or done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._on_failure(error)
        with self._turns as machine:
            machine.listener_called(current.call)


# Commits that the program waits for, until the machine says how they went


class AwaitedCommits:
    """Of one consumer."""

    def __init__(self, turns: Turns, clock: Clock, usual_seconds: float) -> None:
        self._turns = turns
        self._clock = clock
        self._usual_seconds = usual_seconds
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def commit(self, offsets: OffsetsToCommit, timeout_seconds: float | None = None) -> None:
        """Raises how it failed."""
        if timeout_seconds is None:
            timeout_seconds = self._usual_seconds
        commit_id = next(self._ids)
        done = self._waiting[commit_id] = asyncio.get_running_loop().create_future()
        # A single request may take longer than the program waits.
        too_late = OperationTimeoutError(f"could not commit within {timeout_seconds:g} seconds")
        timer = self._clock.call_later(timeout_seconds, lambda: self.finish(commit_id, too_late))
        try:
            with self._turns as machine:
                machine.require_commits().commit(commit_id, offsets, timeout_seconds)
            await done
        finally:
            timer.cancel()
            del self._waiting[commit_id]

    def finish(self, commit_id: int, failure: Exception | None) -> None:
        """The first outcome counts."""
        done = self._waiting.get(commit_id)
        if done is None or done.done():
            return
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    def fail_all(self, failure: Exception) -> None:
        """Nothing of it will be heard any more."""
        for commit_id in self._waiting:
            self.finish(commit_id, failure)


class Wakeups:
    """Counts events. Whoever has seen some of them can wait for more."""

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order of their coming

    def wake_waiters(self) -> None:
        self.count += 1
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_for_next(self, than: int, timeout_seconds: float) -> bool:
        """Until there are more than so many, or time is up; whether there are more."""
        if self.count > than or timeout_seconds <= 0:
            return self.count > than
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(timeout_seconds, lambda: _wake_waiter(waiter))
        self._waiting[waiter] = None
        try:
            await waiter
        finally:
            timer.cancel()
            del self._waiting[waiter]
        return self.count > than


def _wake_waiter(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


# From the arguments of a consumer to its delegate, the same for both faces

CLOSE_SECONDS = 30.0
"""How long closing may take unless told otherwise, as in Kafka."""

GivenOffsets = (
    Mapping[TopicPartition, int | GroupOffset] | ConsumerRecord | Iterable[ConsumerRecord] | None
)
"""What can be committed: offsets to be read next, or records that were dealt with."""


def make_delegate(
    bootstrap: str,
    keywords: Mapping[str, object],
    *,
    group: str | None,
    commit: str | None,
    assignors: Sequence[str | Assignor] | None,
    key_deserializer: GivenDeserializer | None,
    value_deserializer: GivenDeserializer | None,
    listeners: Mapping[RebalanceEvent, RebalanceListener | None],
    network: Network | None,
    clock: Clock | None,
    random: Random | None,
) -> ConsumerDelegate:
    """From what a consumer was given beside the address."""
    options = ConsumerOptions.read(_convert_durations(keywords))
    require_deserializers(key_deserializer, value_deserializer)
    for event, listener in listeners.items():
        require_function(listener, f"on_{event.name.lower()}", example="lambda partitions: …")
    return ConsumerDelegate(
        bootstrap,
        options,
        group_id=_choose_group(group, options),
        commit_mode=_choose_commit_mode(commit, options),
        assignors=_choose_assignors(assignors, options),
        listeners={event: one for event, one in listeners.items() if one is not None},
        decoding=Decoding(options.check_crcs, key_deserializer, value_deserializer),
        network=network,
        clock=clock,
        random=random,
    )


def _convert_durations(keywords: Mapping[str, object]) -> Mapping[str, object]:
    """Values that are nicer in Python than as text."""
    reset = keywords.get("auto_offset_reset")
    if not isinstance(reset, timedelta):
        return keywords
    return {**keywords, "auto_offset_reset": f"by_duration:PT{reset.total_seconds():.3f}S"}


def _choose_group(group: str | None, options: ConsumerOptions) -> str | None:
    if group is not None and options.group_id is not None and group != options.group_id:
        raise ConfigurationError(f"group={group!r} and group_id={options.group_id!r} contradict")
    if group is not None:
        require_kind(group, str, "group", "its name, like 'billing'")
    chosen = group if group is not None else options.group_id
    if chosen == "":
        raise ConfigurationError("the group's name is empty; leave it out to have no group")
    return chosen


def _choose_commit_mode(word: str | None, options: ConsumerOptions) -> CommitMode:
    if word is None:
        return CommitMode.AFTER if options.enable_auto_commit else CommitMode.MANUAL
    mode = CommitMode.parse(word)
    is_automatic = mode is not CommitMode.MANUAL
    if "enable_auto_commit" in options.given and options.enable_auto_commit != is_automatic:
        raise ConfigurationError(f"commit={word!r} and enable.auto.commit contradict each other")
    return mode


def _choose_assignors(
    given: Sequence[str | Assignor] | None, options: ConsumerOptions
) -> list[Assignor]:
    if given is not None and options.group_protocol != "classic":
        raise ConfigurationError(
            "assignors mean nothing with group.protocol=consumer: the broker assigns; see "
            "group.remote.assignor"
        )
    chosen = options.partition_assignment_strategy if given is None else given
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        raise wrong_type("assignors", "a list, like ['range']", chosen)
    if not chosen:
        raise ConfigurationError("a consumer needs at least one assignor")
    return [require_assignor(one) for one in chosen]


def read_offsets(given: GivenOffsets) -> dict[TopicPartition, GroupOffset] | None:
    """Offsets to commit; None stands for the positions of all partitions."""
    if given is None:
        return None
    if isinstance(given, ConsumerRecord):
        return _behind((given,))
    if isinstance(given, Mapping):
        by_partition = require_by_partition(given)
        return {one: _as_group_offset(offset) for one, offset in by_partition.items()}
    return _behind(require_list(given, ConsumerRecord, "records, or a mapping of offsets"))


def _behind(records: Iterable[ConsumerRecord]) -> dict[TopicPartition, GroupOffset]:
    found: dict[TopicPartition, GroupOffset] = {}
    for record in records:
        partition = TopicPartition(record.topic, record.partition)
        known = found.get(partition)
        if known is None or record.offset >= known.offset:
            found[partition] = GroupOffset(
                offset=record.offset + 1, leader_epoch=record.leader_epoch
            )
    return found


def _as_group_offset(offset: int | GroupOffset) -> GroupOffset:
    found = offset if isinstance(offset, GroupOffset) else GroupOffset(offset=offset)
    number = require_whole(found.offset, "offset", "a number")
    if number < 0:
        raise ConfigurationError(f"{number} is no offset to commit")
    return replace(found, offset=number)


def read_time_ms(time: int | datetime) -> int:
    """Milliseconds since 1970. A datetime without a zone is local time, as everywhere in Python."""
    found = round(time.timestamp() * 1000) if isinstance(time, datetime) else time
    time_ms = require_whole(found, "time", "milliseconds since 1970, or a datetime")
    if time_ms < 0:
        raise ConfigurationError(f"{time} is before 1970")
    return time_ms


def partitions_or_all(
    given: Collection[TopicPartition] | TopicPartition | None, machine: ConsumerMachine
) -> list[TopicPartition]:
    """What was named, or all that is assigned; each of them has to be assigned."""
    if given is None:
        return sorted(machine.subscriptions.partitions)
    some = (given,) if isinstance(given, TopicPartition) else given
    return [machine.subscriptions.require(one).partition for one in require_partitions(some)]


def partitions_to_seek(
    given: Collection[TopicPartition] | TopicPartition | None, machine: ConsumerMachine
) -> list[TopicPartition]:
    """As `partitions_or_all`; raises where there would be nothing to seek in, and would be later.

    A member of a group may have no partitions for good reasons. Without a group they are only not
    known yet, and whoever seeks before would read from where they did not want to.
    """
    found = partitions_or_all(given, machine)
    if given is None and not found and machine.membership is None:
        raise NotAssignedError(
            "the partitions are not known yet, so there is nothing to seek in: poll first, or "
            "assign() partitions instead of topics, or seek in on_assigned"
        )
    return found


async def call_inline(call: ListenerInvocation) -> None:
    """Make a call of the program's function on the loop, and await what it gives back."""
    try:
        result = call.listener(call.partitions)
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # noqa: BLE001 it is the program's, which gets it back
        call.finish(error)
    except BaseException:
        call.finish(RuntimeError("the call was interrupted"))
        raise
    else:
        call.finish(None)
