"""A consumer without its sockets, threads and clocks: events in, instructions out. A rule.

The parts, each with its own table of states:

    subscription_state   what to read, where the program is in each partition, its streams
    fetch_buffer         fetched records, until they are given
    fetch_plan           what to fetch from whom
    offset_manager       which offsets are committed when, and where a consumer begins
    rebalance_listener   partitions that come and go, without the program being disturbed
    classic_membership   the place in the group, by the classic protocol
    consumer_membership  the same by the consumer protocol (KIP-848)

Each call of a method is an event. It happens in a turn: `begin_turn` tells the time and what is
known of the cluster, `end_turn` gives the instructions (`instructions`), which shells
carry out and answer with further events. In between nothing happens by itself.

The program polls when it wants records and there are none at hand, or when something waits for it
(`attention`): `begin_poll`, then `prepare_poll` and `fill_buffer` until there is something to take,
then `end_poll`. Between polls it owns what it was given, and nothing changes for it: a rebalance
waits for the next poll.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from moldau.client.consumer.rules.assignors import Assignor
from moldau.client.consumer.rules.classic_membership import ClassicMembership
from moldau.client.consumer.rules.consumer_membership import ConsumerMembership
from moldau.client.consumer.rules.fetch_buffer import Decoding, Position
from moldau.client.consumer.rules.fetch_plan import FetchPlan, reads_committed
from moldau.client.consumer.rules.instructions import (
    ConsumerInstruction,
    ConsumerTimer,
    ConsumerTurn,
    Failure,
    Identity,
    LookUpOffsets,
    Refresh,
    TimerKind,
    Validate,
)
from moldau.client.consumer.rules.offset_manager import (
    CommitMode,
    LeaderEpochEnd,
    OffsetCommits,
    OffsetFetcher,
)
from moldau.client.consumer.rules.rebalance_listener import (
    ListenerCall,
    OwnedPartitions,
    RebalanceEvent,
)
from moldau.client.consumer.rules.subscription_state import (
    ConsumerStream,
    ConsumerStreams,
    SubscribedTopics,
    SubscriptionState,
    TopicSelection,
)
from moldau.client.rules.broker_errors import Backoff, Chance
from moldau.client.rules.cluster_metadata import ClusterMetadata
from moldau.client.rules.offsets import GroupOffset
from moldau.config.client_options import ConsumerOptions
from moldau.errors import ConfigurationError, InvariantViolation, OffsetOutOfRangeError
from moldau.model import TopicPartition, records_behind

_SHORTEST_REMINDER_SECONDS: Final = 0.01

GroupMembership: TypeAlias = ClassicMembership | ConsumerMembership
"""By one protocol or the other; for the machine they are the same."""


class ConsumerMachine:
    """One consumer. All of it changes between `begin_turn` and `end_turn`, and never elsewhere."""

    def __init__(
        self,
        options: ConsumerOptions,
        *,
        group_id: str | None,
        commit_mode: CommitMode,
        assignors: Sequence[Assignor],
        member_id: str,
        listened_to: Collection[RebalanceEvent],
        decoding: Decoding,
        backoff: Backoff,
        chance: Chance,
        now: float,
    ) -> None:
        self.attention = True  # something waits for the program to poll
        self.is_closed = False
        self.has_left = False
        self.commits_before = group_id is not None and commit_mode is CommitMode.BEFORE
        self._reads_committed = reads_committed(options)
        self._interval_seconds = options.auto_commit_interval_ms / 1000
        self._has_begun = False
        self._is_interrupted = False  # until the program was in
        self._leave_reason: str | None = None  # while it leaves
        self._turn = turn = ConsumerTurn(now, backoff, chance)
        self.subscriptions = SubscriptionState(
            options.auto_offset_reset, has_group=group_id is not None
        )
        self.streams = ConsumerStreams(self.subscriptions, decoding, now)
        self.topics = SubscribedTopics(turn, self.subscriptions, options.metadata_max_age_ms / 1000)
        self.fetch_plan = FetchPlan(turn, self.subscriptions, options)
        self.offset_fetcher = OffsetFetcher(turn, self.subscriptions)
        self.commits: OffsetCommits | None = None
        if group_id is not None:
            self.commits = OffsetCommits(
                turn,
                self.subscriptions,
                group_id,
                mode=commit_mode,
                interval_seconds=self._interval_seconds,
                timeout_seconds=options.default_api_timeout_ms / 1000,
            )
        self.owned_partitions = OwnedPartitions(
            turn, self.subscriptions, self.streams, self.fetch_plan, self.commits, listened_to
        )
        self.membership: GroupMembership | None = None
        if group_id is not None:
            self.membership = self._make_membership(options, group_id, assignors, member_id)
        if self.commits is not None and self.membership is not None:
            self.commits.identity = self._find_identity(self.membership)

    def _make_membership(
        self,
        options: ConsumerOptions,
        group_id: str,
        assignors: Sequence[Assignor],
        member_id: str,
    ) -> GroupMembership:
        if options.group_protocol == "classic":
            return ClassicMembership(
                self._turn,
                group_id,
                options,
                assignors,
                subscriptions=self.subscriptions,
                streams=self.streams,
                topics=self.topics,
                owned_partitions=self.owned_partitions,
            )
        return ConsumerMembership(
            self._turn,
            group_id,
            options,
            member_id,
            subscriptions=self.subscriptions,
            streams=self.streams,
            topics=self.topics,
            owned_partitions=self.owned_partitions,
        )

    # Turns

    def begin_turn(self, now: float, now_ms: int, cluster: ClusterMetadata) -> None:
        turn = self._turn
        turn.now, turn.now_ms, turn.cluster = now, now_ms, cluster

    def end_turn(self) -> tuple[Sequence[ConsumerInstruction], bool]:
        """What to do now, and whether something has happened that the program may wait for."""
        turn = self._turn
        while self._take_step():
            pass
        if self._has_begun and not self.is_closed:
            self._request_due()
        instructions, turn.instructions = turn.instructions, []
        wakes_program, turn.wakes_program = turn.wakes_program, False
        self.attention = self._is_interrupted or self._needs_attention()
        return instructions, wakes_program

    def _take_step(self) -> bool:
        if self.commits is None or self.membership is None:
            return self.owned_partitions.advance()
        self.commits.identity = self._find_identity(self.membership)
        return (
            self.owned_partitions.advance()
            or self._advance_leaving(self.commits, self.membership)
            or self.membership.advance()
        )

    def _request_due(self) -> None:
        if self.fetch_plan.is_due:
            self.fetch_plan.plan_fetches()
        if self.fetch_plan.wants_positions:
            self.fetch_plan.wants_positions = False
            self.want_positions()
        self.topics.is_wanted = self.topics.is_wanted or self.fetch_plan.wants_metadata
        self.fetch_plan.wants_metadata = False
        self.offset_fetcher.maybe_ask()
        self.topics.maybe_refresh()

    def _needs_attention(self) -> bool:
        return bool(
            self.is_closed
            or self.owned_partitions.revocation is not None
            or self.owned_partitions.calls
            or self._turn.failures
            or self._fatal is not None
            or self.streams.has_void
        )

    @property
    def _fatal(self) -> Failure | None:
        """What every call of the program raises."""
        membership = self.membership
        return None if membership is None or membership.is_running else membership.failure

    def _find_identity(self, membership: GroupMembership) -> Identity | None:
        """As whom to commit; None for a member that the group has lost."""
        is_to_be_member = not self.topics.selection.is_empty
        return None if membership.is_lost and is_to_be_member else membership.identity

    def timer_fired(self, timer: ConsumerTimer) -> None:
        key = timer.key
        match timer.kind:
            case TimerKind.METADATA_PAUSE:
                self.topics.on_pause_over()
            case TimerKind.METADATA_AGE if isinstance(key, int):
                self.topics.on_aged(key)
            case TimerKind.LOOK_UP:
                self.offset_fetcher.on_pause_over()
            case TimerKind.BROKER if isinstance(key, int):
                self.fetch_plan.on_broker_free(key)
            case TimerKind.PARTITION if isinstance(key, tuple):
                self.fetch_plan.on_partition_free(key)
            case TimerKind.JOIN if isinstance(key, int) and self.membership is not None:
                self.membership.on_pause_over(key)
            case TimerKind.HEARTBEAT if isinstance(key, int) and self.membership is not None:
                self.membership.on_heartbeat_due(key)
            case TimerKind.COMMIT if self.commits is not None:
                self.commits.on_retry()
            case TimerKind.REMINDER:
                self._is_interrupted = True
                self._arm_reminder()
            case _:
                raise TypeError(f"{timer} is none of this consumer's")

    def _arm_reminder(self) -> None:
        """Have the program poll now and then, though it has records enough."""
        seconds = max(self._interval_seconds, _SHORTEST_REMINDER_SECONDS)
        self._turn.arm(TimerKind.REMINDER, 0, seconds)

    # What the program wants to read

    def subscribe(self, selection: TopicSelection) -> None:
        if self.topics.selection.is_empty and len(self.subscriptions):
            raise ConfigurationError("partitions are assigned by hand; unsubscribe first")
        self.topics.select(selection)
        unwanted: frozenset[TopicPartition] = frozenset()
        if not selection.is_pattern:
            unwanted = frozenset(
                p for p in self.subscriptions.partitions if p.topic not in selection.names
            )
            self._is_interrupted = True
        self.owned_partitions.suspend_partitions(unwanted)
        self.owned_partitions.resume_partitions(self.subscriptions.partitions - unwanted)
        if self.membership is not None:
            self.membership.request_join("the subscription has changed")

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these, without the group having a say."""
        if not self.topics.selection.is_empty:
            raise ConfigurationError("topics are subscribed to; unsubscribe first")
        wanted = frozenset(TopicPartition(*one) for one in partitions)
        gone = self.subscriptions.partitions - wanted
        if self.commits is not None and self.commits.is_automatic:
            given = self.streams.given_positions()
            self.commits.commit_positions({p: at for p, at in given.items() if p in gone})
        self.owned_partitions.remove_partitions(gone)
        self.owned_partitions.add_partitions(wanted - self.subscriptions.partitions)
        self.topics.is_wanted = True
        self._is_interrupted = True

    def split_streams(self, count: int) -> tuple[ConsumerStream, ...]:
        """Have several streams; what the one before was given counts as dealt with."""
        self.streams.finish_all(has_failed=False)
        self._go_back(self.subscriptions.partitions)
        self.fetch_plan.is_shared = count > 1
        return self.streams.split(count, self._turn.now)

    def retire(self, stream: ConsumerStream, *, has_failed: bool) -> None:
        """This stream takes nothing any more; others go on where it was."""
        if stream.is_retired:
            return
        self.streams.finish_processing(stream, has_failed=has_failed and not self.commits_before)
        self.owned_partitions.on_stream_idle(stream)
        left = frozenset(stream.partitions)
        self.streams.retire(stream)
        self._go_back(left)
        self._turn.wakes_program = True

    def _go_back(self, partitions: Iterable[TopicPartition]) -> None:
        """Read on behind what was dealt with; what was fetched does not count."""
        for partition in sorted(partitions):
            state = self.subscriptions.find(partition)
            if state is not None and state.position is not None:
                self.seek(partition, state.position)

    # The program polls

    def start_fetching(self) -> None:
        """The program asks for the first time."""
        if self._has_begun:
            return
        self._has_begun = True
        self.topics.is_wanted = self.fetch_plan.is_due = True
        if self.commits is not None and self.commits.mode is CommitMode.AFTER:
            self._arm_reminder()

    def begin_poll(self, stream: ConsumerStream) -> None:
        """The program has dealt with all that this stream gave it, and wants more."""
        self.start_fetching()
        self.streams.finish_processing(stream)
        self.owned_partitions.on_stream_idle(stream)

    def prepare_poll(self, stream: ConsumerStream) -> bool:
        """The program is in: do what has waited for it. Whether it was served, too; else its
        functions may have to be called first."""
        self.streams.clear_void()
        membership = self.membership
        is_outside = membership is not None and not membership.is_running
        if membership is not None and is_outside and self._fatal is None and self.topics.is_ready:
            membership.start()
        if self.owned_partitions.revocation is not None or self.owned_partitions.calls:
            return False
        self.fill_buffer(stream)
        return True

    def fill_buffer(self, stream: ConsumerStream) -> None:
        """All calls were made: raise what the program has to know, or give it records."""
        self.raise_failures()
        self._look_at_failed_partitions(stream)
        if self.commits is not None:
            self.commits.commit_if_due()
        self.want_positions()
        if not stream.buffer.has_more:
            stream.buffer.add(self.fetch_plan.take_fetches(stream.partitions))

    def end_poll(self, stream: ConsumerStream) -> None:
        """The program works on what it was given from now on."""
        self._is_interrupted = False
        if not self.is_closed and not stream.is_retired:  # else nothing is given any more
            stream.start_processing(self._turn.now)

    def raise_failures(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._turn.failures:
            raise self._turn.failures.pop(0)

    def raise_later(self, failure: Exception) -> None:
        self._turn.raise_later(failure)

    def _look_at_failed_partitions(self, stream: ConsumerStream) -> None:
        for state in self.subscriptions.failed:
            failure = state.failure
            if failure is None or not state.is_read_up or state.partition not in stream.partitions:
                continue
            self.fetch_plan.is_due = True
            if not isinstance(failure, OffsetOutOfRangeError):
                self.subscriptions.clear_failure(state)
                raise failure
            self.subscriptions.lose_offset(state.partition, state.epoch, state.fetch_offset)
            self.fetch_plan.forget_partitions((state.partition,))
            stream.buffer.drop((state.partition,))  # knows the old position still

    # The program's functions

    def next_listener_call(self) -> ListenerCall | None:
        """What to call before anything else is done for the program."""
        return self.owned_partitions.calls[0] if self.owned_partitions.calls else None

    def mark_call_begun(self, call: ListenerCall, *, is_begun: bool = True) -> None:
        """It is being made, and cannot be called off; or it was interrupted."""
        call.is_begun = is_begun

    def listener_called(self, call: ListenerCall) -> None:
        self.owned_partitions.on_called(call)

    # Where to read

    def want_positions(self) -> None:
        """Look for partitions that need a position."""
        if self.subscriptions.has_unready:
            self.offset_fetcher.is_wanted = True

    def seek(self, partition: TopicPartition, position: Position) -> None:
        self.subscriptions.seek(partition, position)
        self._moved(partition)

    def reset(self, partition: TopicPartition, timestamp: int) -> None:
        """Move to the offset of a time, or EARLIEST or LATEST, when it is looked up."""
        self.subscriptions.request_reset(partition, timestamp)
        self._moved(partition)

    def _moved(self, partition: TopicPartition) -> None:
        """What was fetched of this does not count any more."""
        self._is_interrupted = True  # ends an iteration over it
        self.streams.start_over((partition,))
        self.fetch_plan.forget_partitions((partition,))

    def pause(self, partitions: Collection[TopicPartition], *, is_paused: bool) -> None:
        for partition in partitions:
            self.subscriptions.require(partition).is_paused = is_paused
        self.streams.pause(self.subscriptions.paused)
        self.fetch_plan.is_due = True
        self._turn.wakes_program = True
        self._is_interrupted = True  # ends an iteration over what is paused

    def lag(self, partition: TopicPartition) -> int | None:
        state = self.subscriptions.require(partition)
        position = self.streams.position(partition)
        end = state.last_stable_offset if self._reads_committed else state.high_watermark
        return None if position is None or end < 0 else records_behind(position.offset, end)

    # Answers of the coordinator go to the parts that asked

    def require_membership(self) -> GroupMembership:
        if self.membership is None:
            raise ConfigurationError("a consumer without a group is no member")
        return self.membership

    def require_identity(self) -> Identity:
        """As whom to commit in a transaction. Somebody without a generation could always: a member
        that the group has lost must not be taken for one."""
        identity = self._find_identity(self.require_membership())
        if identity is None:
            raise self.require_commits().refuse_lost_member()
        return identity

    def require_classic_membership(self) -> ClassicMembership:
        if not isinstance(self.membership, ClassicMembership):
            raise InvariantViolation("this is no member by the classic protocol")
        return self.membership

    def require_consumer_membership(self) -> ConsumerMembership:
        if not isinstance(self.membership, ConsumerMembership):
            raise InvariantViolation("this is no member by the consumer protocol")
        return self.membership

    def find_epoch_member(self) -> Identity | None:
        """As whom to look up committed offsets: only the consumer protocol has a say in it."""
        membership = self.membership
        if not isinstance(membership, ConsumerMembership) or membership.is_lost:
            return None
        return membership.identity

    def require_commits(self) -> OffsetCommits:
        if self.commits is None:
            raise ConfigurationError("a consumer without a group cannot commit")
        return self.commits

    # Answers of brokers

    def refreshed(self, asked: Refresh) -> None:
        has_changed = self.topics.refreshed(asked)
        if self.membership is not None:
            self.membership.on_topics(has_changed=has_changed)
        elif not self.topics.selection.is_empty:
            self._read_everything()
        self.fetch_plan.is_due = True
        self._turn.wakes_program = True

    def _read_everything(self) -> None:
        """Without a group, a subscription means all partitions."""
        wanted = self.topics.find_all_partitions()
        gone = self.subscriptions.partitions - wanted
        self.subscriptions.remove(gone)
        self._make_void(gone)
        self.owned_partitions.add_partitions(wanted - self.subscriptions.partitions)

    def refresh_failed(self, failure: Failure) -> None:
        for_program = self.topics.refresh_failed(failure)
        if for_program is not None:
            self._turn.raise_later(for_program)

    def found_committed(self, found: Mapping[TopicPartition, GroupOffset | None]) -> None:
        self.offset_fetcher.found_committed(found)
        self.fetch_plan.is_due = True

    def found_offsets(self, asked: LookUpOffsets, found: Mapping[TopicPartition, Position]) -> None:
        self.offset_fetcher.found_offsets(asked, found)
        self.fetch_plan.is_due = True

    def validated(self, asked: Validate, found: Iterable[LeaderEpochEnd]) -> None:
        self._make_void(self.offset_fetcher.validated(asked, found))
        self.fetch_plan.is_due = True

    def _make_void(self, partitions: Collection[TopicPartition]) -> None:
        """What was given of these does not count; the program may be at work on it."""
        for partition in partitions:
            self.streams.make_void(partition)
        self.fetch_plan.forget_partitions(partitions)

    # Ends

    def close(self, *, has_failed: bool) -> None:
        """The program wants no more, and has dealt with what it was given, perhaps but for the
        last record. At most once, what was given is not given again, whatever became of it."""
        self.streams.finish_all(has_failed=has_failed and not self.commits_before)
        self.is_closed = True
        self._turn.wakes_program = True

    def unsubscribe(self) -> None:
        self.streams.finish_all(has_failed=False)
        self.topics.select(TopicSelection())

    def leave(self, reason: str) -> None:
        """Commit, give everything up and leave the group; `has_left` when that is done."""
        self.has_left = self.membership is None
        if self.membership is None or self.commits is None:
            return
        self._leave_reason = reason
        if self.membership.is_running:
            self.owned_partitions.is_leaving = True
            self.owned_partitions.cancel_assignment()
            for stream in self.streams:
                self.owned_partitions.on_stream_idle(stream)
        elif self.commits.is_automatic:
            self.commits.commit_positions(self.subscriptions.processed_positions)

    def _advance_leaving(self, commits: OffsetCommits, membership: GroupMembership) -> bool:
        """As a member still: in the middle of a rebalance the coordinator takes no commits, so
        that the rebalance has to go on for them."""
        if self._leave_reason is None:
            return False
        if not membership.is_running:
            if commits.is_busy:
                return False
            self.left()
        elif (
            self.owned_partitions.is_changing or commits.is_busy
        ):  # with what the program asked for
            return False
        elif len(self.subscriptions):
            self.owned_partitions.revoke_partitions(
                self.subscriptions.partitions, is_lost=membership.is_lost
            )
        else:
            reason, self._leave_reason = self._leave_reason, None
            self.owned_partitions.is_leaving = False
            membership.leave(reason)
        return True

    def left(self) -> None:
        """The coordinator knows, or cannot be told."""
        self._leave_reason = None
        self.owned_partitions.is_leaving = False
        self.has_left = True
        self._turn.wakes_program = True

    def release_all(self) -> None:
        """Nothing is the program's any more."""
        self.owned_partitions.remove_partitions(self.subscriptions.partitions)


Turns: TypeAlias = AbstractContextManager[ConsumerMachine]
"""`with turns as machine:` an event happens to the machine; what it wants done is done then."""
