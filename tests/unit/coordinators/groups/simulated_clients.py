"""Clients of a group as the real ones behave, and a shard without a log, a loop or a socket.

`Simulation` gives the machine's replies to the clients at once and plays its timers on a clock that
tests move. It checks after every event what has to hold of a group, and that no request is answered
twice.
"""

from __future__ import annotations

import itertools

from moldau.coordinators.groups.rules.classic_group import LOGGED_MOVES, ClassicGroupState
from moldau.coordinators.groups.rules.events import (
    Abandon,
    AppendFailed,
    GroupAnswer,
    GroupEvent,
    GroupProtocol,
    GroupTimer,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeavingMember,
    Sync,
    SyncAnswer,
    TimerFired,
    refusal_like,
)
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.invariants import check_group, check_timers
from moldau.coordinators.groups.rules.outcome import Arm, Disarm, GroupLimits, Outcome
from moldau.coordinators.groups.rules.records import CoordinatorRecord, GroupRecord
from moldau.errors import ErrorCode

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Client:
    """A consumer. `act` does what a consumer would do next; a parked request keeps it waiting."""

    def __init__(self, name: str, version: int, instance_id: str | None) -> None:
        self.name = name
        self.version = version
        self.instance_id = instance_id
        self.forget()
        self.metadata = b""
        self.request: int | None = None  # parked
        self.acted_ms = 0  # when it sent its last request
        self.is_alive = True
        self.errors: list[ErrorCode] = []

    def forget(self) -> None:
        """Be somebody who has just started."""
        self.member_id = ""
        self.generation = -1
        self.leads: tuple[str, ...] = ()  # the members that it has to assign to
        self.assignment: bytes | None = None
        self.has_joined = False

    @property
    def is_settled(self) -> bool:
        return self.has_joined and self.assignment is not None

    def next_event(self) -> GroupEvent:
        if not self.has_joined:
            return self._join()
        if self.assignment is None:
            text = f"{self.generation}:{{}}".format
            return Sync(
                group_id=GROUP,
                generation=self.generation,
                member_id=self.member_id,
                instance_id=self.instance_id,
                assignments=tuple((one, text(one).encode()) for one in self.leads),
            )
        return Heartbeat(
            group_id=GROUP,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
        )

    def _join(self) -> Join:
        return Join(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance_id,
            new_member_id=f"{self.name}-{next(_ids)}",
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(GroupProtocol("range", self.metadata), GroupProtocol("sticky", b"")),
            needs_member_id=self.version >= 4,
            can_skip_assignment=self.version >= 9,
        )

    def take(self, answer: GroupAnswer) -> None:
        """What a consumer makes of an answer."""
        self.request = None
        error = answer.error
        if error is not ErrorCode.none:
            self._take_error(error, answer)
        elif isinstance(answer, JoinAnswer):
            self.member_id = answer.member_id
            self.generation = answer.generation
            self.leads = tuple(one.member_id for one in answer.members)
            if answer.skip_assignment:
                self.leads = ()
            self.has_joined, self.assignment = True, None
        elif isinstance(answer, SyncAnswer):
            self.assignment = answer.assignment

    def _take_error(self, error: ErrorCode, answer: GroupAnswer) -> None:
        if error is ErrorCode.member_id_required and isinstance(answer, JoinAnswer):
            self.member_id = answer.member_id
            return
        self.has_joined, self.assignment = False, None
        if error is ErrorCode.rebalance_in_progress:
            return
        self.errors.append(error)
        if error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self.forget()


_ids = itertools.count(1)


class Simulation:
    """One group and its clients."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.limits = limits or GroupLimits()
        self.groups = Groups(self.limits)
        self.clients: list[Client] = []
        self.log: list[CoordinatorRecord] = []
        self.now_ms = 1_000_000
        self.timers: dict[GroupTimer, int] = {}
        self.writes_fail = False
        self._requests = itertools.count(1)
        self._waiting: dict[int, Client] = {}
        self._answered: set[int] = set()

    def add(self, version: int = 9, instance_id: str | None = None) -> Client:
        client = Client(f"c{len(self.clients)}", version, instance_id)
        self.clients.append(client)
        return client

    def act(self, client: Client) -> None:
        if client.is_alive and client.request is None:
            self._submit(client.next_event(), client)

    def rejoin(self, client: Client, metadata: bytes) -> None:
        """It has something new to say."""
        if client.is_alive and client.request is None:
            client.metadata = metadata
            client.has_joined, client.assignment = False, None
            self.act(client)

    def leave(self, client: Client) -> None:
        if client.is_alive and client.request is None and client.member_id:
            leaving = LeavingMember(client.member_id, client.instance_id)
            self._perform(
                self.groups.handle(
                    Leave(group_id=GROUP, members=(leaving,)), self.now_ms, next(self._requests)
                )
            )
            client.forget()

    def disconnect(self, client: Client) -> None:
        """The connection breaks; the client will try again."""
        if client.request is not None:
            request, client.request = client.request, None
            del self._waiting[request]
            client.has_joined, client.assignment = False, None
            self._perform(self.groups.handle(Abandon(group_id=GROUP, request=request), self.now_ms))

    def kill(self, client: Client) -> None:
        self.disconnect(client)
        client.is_alive = False

    def restart(self) -> None:
        """Another coordinator takes over, with nothing but the log."""
        for request, client in tuple(self._waiting.items()):
            client.request = None
            client.has_joined, client.assignment = False, None
            del self._waiting[request]
        self.timers.clear()
        self.groups = Groups(self.limits)
        for record in self.log:
            self.groups.apply(record)
        self._perform(self.groups.start_timers())

    def wait(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while self.timers:
            timer, due_ms = min(self.timers.items(), key=lambda one: (one[1], one[0].member_id))
            if due_ms > end_ms:
                break
            self.now_ms = due_ms
            del self.timers[timer]
            self._perform(self.groups.handle(TimerFired(timer=timer), self.now_ms))
        self.now_ms = end_ms

    def wait_with_heartbeats(self, milliseconds: int) -> None:
        """Time passes, and whoever is alive and not waiting says so, or goes on in good time."""
        self.wait(milliseconds)
        for client in self.clients:
            is_late = bool(client.member_id) and self.now_ms - client.acted_ms > SESSION_MS // 3
            if client.is_settled or is_late:
                self.act(client)

    def settle(self, rounds: int = 60) -> None:
        """Let everyone do what there is to do until nothing changes any more."""
        for _ in range(rounds):
            for client in self.clients:
                self.act(client)
            self.wait(2_000)

    def alive(self) -> list[Client]:
        return [client for client in self.clients if client.is_alive]

    def _submit(self, event: GroupEvent, client: Client) -> None:
        request = next(self._requests)
        client.request = request
        client.acted_ms = self.now_ms
        self._waiting[request] = client
        self._perform(self.groups.handle(event, self.now_ms, request))

    def _perform(self, outcome: Outcome) -> None:
        failed = bool(outcome.records) and self.writes_fail
        if not failed:
            for record in outcome.records:
                self.log.append(record)
                self._apply(record)
        for effect in outcome.effects:
            if isinstance(effect, Arm):
                self.timers[effect.timer] = self.now_ms + effect.delay_ms
            elif isinstance(effect, Disarm):
                self.timers.pop(effect.timer, None)
        for request, answer in outcome.replies:
            assert request not in self._answered, f"{answer} is a second answer"
            self._answered.add(request)
            client = self._waiting.pop(request, None)
            if client is not None:
                error = ErrorCode.coordinator_not_available
                client.take(refusal_like(answer, error) if failed else answer)
        if failed and outcome.must_be_logged:
            self._perform(self.groups.handle(AppendFailed(group_id=GROUP), self.now_ms))
        else:
            self._check()

    def _apply(self, record: CoordinatorRecord) -> None:
        """Only the moves that the table allows."""
        group = self.groups.find(GROUP)
        former = ClassicGroupState.EMPTY if group is None else group.state
        self.groups.apply(record)
        if group is not None and isinstance(record, GroupRecord):
            assert group.state in LOGGED_MOVES[former], f"{former} to {group.state}"

    def _check(self) -> None:
        group = self.groups.find(GROUP)
        if group is None:
            assert not self.timers, "timers are left of a group that has gone"
            return
        assert not group.is_vacant, "nothing is left of the group but itself"
        check_group(group)
        check_timers(group, self.timers)
        parked = {member.join_request for member in group.members} | {
            member.sync_request for member in group.members
        }
        lost = self._waiting.keys() - parked
        assert not lost, f"nobody will ever answer {[self._waiting[one].name for one in lost]}"
        generations = [
            record.metadata.generation
            for record in self.log
            if isinstance(record, GroupRecord) and record.metadata is not None
        ]
        assert generations == sorted(generations), "a generation came twice"
