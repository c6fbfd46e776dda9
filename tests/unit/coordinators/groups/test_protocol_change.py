"""Groups whose members speak both protocols: upgrades, downgrades, and life in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from consumer_group_world import CLICKS, GROUP, ORDERS, World, image_of
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinators.groups.rules.classic_group import ClassicGroup, ClassicGroupState
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup, ConsumerGroupState
from moldau.coordinators.groups.rules.events import (
    LEAVING_EPOCH,
    AppendFailed,
    CodeAnswer,
    CommitOffsets,
    GroupProtocol,
    GroupTimer,
    GroupTimerKind,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    LeavingMember,
    Sync,
    SyncAnswer,
    refusal_like,
)
from moldau.coordinators.groups.rules.outcome import Arm, Disarm, Follow
from moldau.coordinators.groups.rules.records import CommittedOffset
from moldau.errors import ErrorCode
from moldau.model import TopicPartition
from moldau.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

ALL = frozenset(range(4))


class MixedWorld(World):
    """With requests that wait for their answers, and events that follow others."""

    def __init__(self, **limits: object) -> None:
        super().__init__(**limits)
        self.answers: dict[int, object] = {}
        self._requests = 0

    def ask(self, event: object) -> int:
        """The number of the request; its answer is in `answers` when it is there."""
        self._requests += 1
        self._do(event, self._requests)
        return self._requests

    def do(self, event: object) -> object:
        return self.answers.get(self.ask(event))

    def _do(self, event: object, request: int) -> None:
        outcome = self.groups.handle(event, self.now_ms, request, self.image)  # type: ignore[arg-type]
        has_failed = self.writes_fail and bool(outcome.records)
        if not has_failed:
            self.log += outcome.records
            for record in outcome.records:
                self.groups.apply(record)
        for effect in outcome.effects:
            match effect:
                case Arm(timer, delay_ms):
                    self.timers[timer] = self.now_ms + delay_ms
                case Disarm(timer):
                    self.timers.pop(timer, None)
                case _:
                    pass
        self.check()
        for number, answer in outcome.replies:
            failure = ErrorCode.coordinator_not_available
            self.answers[number] = refusal_like(answer, failure) if has_failed else answer
        for effect in outcome.effects:
            if isinstance(effect, Follow) and not has_failed:
                self._do(effect.event, 0)
        if has_failed and outcome.must_be_logged:
            self._do(AppendFailed(group_id=GROUP), 0)


class Classic:
    """A consumer of the classic protocol: eager, or one that keeps what it owns while it joins."""

    def __init__(
        self,
        world: MixedWorld,
        name: str,
        *,
        cooperative: bool = False,
        instance: str | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.member_id = ""
        self.instance = instance
        self.cooperative = cooperative
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.is_out = True  # has to join
        self._joining: int | None = None
        self._syncing: int | None = None
        self._leads = False

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.cooperative else "range"

    def join(self) -> None:
        self.ask_to_join()
        self.look()

    def ask_to_join(self) -> None:
        if not self.cooperative:
            self.owned = frozenset()
        owned = tuple(TopicPartition("clicks", one) for one in sorted(self.owned))
        said = Subscription(topics=("clicks",), owned_partitions=owned)
        self._joining = self.world.ask(
            Join(
                group_id=GROUP,
                member_id=self.member_id,
                instance_id=self.instance,
                new_member_id=f"{self.name}-id",
                client_id=self.name,
                client_host="",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(GroupProtocol(self.protocol, encode_subscription(said)),),
                needs_member_id=True,
                can_skip_assignment=True,
            )
        )

    def look(self) -> None:
        """Take the answers that have come."""
        answer = self.world.answers.get(self._joining or -1)
        if isinstance(answer, JoinAnswer):
            self._joining = None
            self._on_joined(answer)
        answer = self.world.answers.get(self._syncing or -1)
        if isinstance(answer, SyncAnswer):
            self._syncing = None
            self._on_synced(answer)

    def _on_joined(self, answer: JoinAnswer) -> None:
        match answer.error:
            case ErrorCode.member_id_required:
                self.member_id = answer.member_id
                self.join()
            case ErrorCode.none:
                self.member_id, self.generation = answer.member_id, answer.generation
                assignments = []
                if answer.leader == answer.member_id:
                    assignments = self._assign([one.member_id for one in answer.members])
                self._syncing = self.world.ask(
                    Sync(
                        group_id=GROUP,
                        generation=self.generation,
                        member_id=self.member_id,
                        instance_id=self.instance,
                        assignments=tuple(assignments),
                    )
                )
                self.look()
            case _:
                self._on_error(answer.error)

    def _assign(self, members: Sequence[str]) -> list[tuple[str, bytes]]:
        count = len(self.world.image.topics["clicks"].partitions)
        shares: dict[str, list[int]] = {one: [] for one in members}
        for number in range(count):
            shares[sorted(members)[number % len(members)]].append(number)
        return [(one, _assignment(share)) for one, share in shares.items()]

    def _on_synced(self, answer: SyncAnswer) -> None:
        if answer.error is not ErrorCode.none:
            self._on_error(answer.error)
            return
        got = {one.partition for one in decode_assignment(answer.assignment).partitions}
        had, self.owned = self.owned, frozenset(got)
        self.is_out = self.cooperative and not had <= got  # says that it has given them up

    def _on_error(self, error: ErrorCode) -> None:
        self.is_out = True
        if error is not ErrorCode.rebalance_in_progress:
            self.owned, self.generation = frozenset(), -1
            if error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
                self.member_id = ""

    def live(self) -> None:
        self.look()
        if self._joining is not None or self._syncing is not None:
            return
        if self.is_out:
            self.join()
            return
        answer = self.world.do(
            Heartbeat(
                group_id=GROUP,
                generation=self.generation,
                member_id=self.member_id,
                instance_id=self.instance,
            )
        )
        assert isinstance(answer, CodeAnswer)
        if answer.error is not ErrorCode.none:
            self._on_error(answer.error)

    def on_coordinator_lost(self) -> None:
        """What it waited for is asked again."""
        if self._joining is not None or self._syncing is not None:
            self._joining = self._syncing = None
            self.is_out = True

    def leave(self) -> object:
        leaving = LeavingMember(self.member_id, self.instance)
        return self.world.do(Leave(group_id=GROUP, members=(leaving,)))


def _assignment(partitions: Iterable[int]) -> bytes:
    return encode_assignment(Assignment(tuple(TopicPartition("clicks", one) for one in partitions)))


def settle(world: MixedWorld, *members: Classic | Modern, rounds: int = 8) -> None:
    for _ in range(rounds):
        world.wait(3_000)
        for member in members:
            member.live()
        for member in members:
            if isinstance(member, Classic):
                member.look()


class Modern:
    """A consumer of the new protocol."""

    def __init__(self, world: MixedWorld, name: str) -> None:
        self.world = world
        self.member_id = name
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self._assigned: frozenset[int] = frozenset()

    def live(self) -> None:
        if self.epoch == 0:
            answer = self.world.join(self.member_id)
        else:
            owned = {CLICKS: self.owned} if self.owned else {}
            answer = self.world.beat(self.member_id, self.epoch, owned=owned)
        if answer.error is not ErrorCode.none:
            self.epoch, self.owned, self._assigned = 0, frozenset(), frozenset()
            return
        self.epoch = answer.epoch
        if answer.assigned is not None:
            self._assigned = answer.assigned.get(CLICKS, frozenset())
        kept = self.owned & self._assigned
        self.owned = self._assigned if kept == self.owned else kept

    def leave(self) -> None:
        self.world.beat(self.member_id, LEAVING_EPOCH)


def test_a_member_of_the_new_protocol_joins_a_classic_group_which_goes_on() -> None:
    for cooperative in (False, True):
        world = MixedWorld()
        old = [Classic(world, name, cooperative=cooperative) for name in ("a", "b")]
        settle(world, *old)
        assert isinstance(world.groups.find(GROUP), ClassicGroup)
        assert sorted(one for member in old for one in member.owned) == sorted(ALL)
        generation = old[0].generation
        new = Modern(world, "new")
        new.live()
        assert isinstance(world.groups.find(GROUP), ConsumerGroup)
        assert world.group.epoch == generation + 1
        settle(world, *old, new)
        assert world.group.state is ConsumerGroupState.STABLE
        shares = [member.owned for member in (*old, new)]
        assert sorted(map(len, shares)) == [1, 1, 2]
        assert frozenset().union(*shares) == ALL


def test_classic_members_join_again_when_the_next_assignment_may_be_computed() -> None:
    world = MixedWorld(consumer_assignment_interval_ms=5_000)
    old, first, second = Classic(world, "a"), Modern(world, "first"), Modern(world, "second")
    settle(world, old)
    first.live()
    second.live()
    group, generation = world.group, old.generation
    assert group.epoch > group.target_epoch
    old.live()
    assert (old.is_out, group.target_epoch) == (True, generation + 1), "for the first one"
    old.live()
    assert not old.is_out
    for _ in range(3):
        world.wait(1_000)
        old.live()
        assert (old.is_out, old.generation) == (False, group.target_epoch)
    settle(world, old, first, second)
    assert group.target_epoch == group.epoch
    assert old.owned | first.owned | second.owned == ALL


def test_an_expression_has_a_new_topic_that_a_classic_member_does_not_read() -> None:
    """Whose heartbeat comes first, and finds all that the group reads as it was."""
    pytest.importorskip("re2", reason="install moldau[regex]")
    world = MixedWorld()
    old = Classic(world, "old")
    settle(world, old)
    world.join("new", topics=None, regex=".*")
    settle(world, old)
    world.beat("new", world.group.assignment_of("new").epoch)
    world.image = image_of({"clicks": 4, "orders": 1})
    old.live()
    world.beat("new", world.group.assignment_of("new").epoch)
    assert ORDERS in world.group.target_of("new")


def test_a_cooperative_member_in_a_rebalance_keeps_what_it_reads_while_the_group_changes() -> None:
    world = MixedWorld()
    first, second = (Classic(world, name, cooperative=True) for name in ("a", "b"))
    settle(world, first)
    assert first.owned == ALL
    first.ask_to_join()  # it goes on reading, and has not asked for its assignment yet
    second.join()
    group = world.groups.find(GROUP)
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    assert [one.assignment for one in group.members] == [b"", b""]
    assert world.join("new").assigned == {}
    assert world.group.assignment_of(first.member_id).assigned == {CLICKS: first.owned}


def test_the_group_is_classic_again_when_the_last_member_of_the_new_protocol_has_gone() -> None:
    world = MixedWorld()
    old, new = Classic(world, "a"), Modern(world, "new")
    settle(world, old, new)
    assert world.group.state is ConsumerGroupState.STABLE
    new.leave()
    group = world.groups.find(GROUP)
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicGroupState.PREPARING_REBALANCE
    assert [one.member_id for one in group.members] == [old.member_id]
    settle(world, old)
    assert old.owned == ALL
    assert group.state is ClassicGroupState.STABLE


def test_a_coordinator_that_takes_over_in_the_middle_of_a_downgrade_ends_it() -> None:
    world = MixedWorld()
    old, new = Classic(world, "a"), Modern(world, "new")
    settle(world, old, new)
    new.leave()
    world.restart()
    group = world.groups.find(GROUP)
    assert isinstance(group, ClassicGroup)
    for _ in range(30):
        settle(world, old, rounds=1)
    assert old.owned == ALL


def test_a_lost_member_of_the_new_protocol_leads_to_a_downgrade_too() -> None:
    world = MixedWorld(consumer_session_timeout_ms=20_000)
    old, new = Classic(world, "a"), Modern(world, "new")
    settle(world, old, new)
    settle(world, old, rounds=12)
    assert isinstance(world.groups.find(GROUP), ClassicGroup)
    assert old.owned == ALL


def test_the_policy_of_the_broker_is_kept() -> None:
    for policy, upgrades, downgrades in (
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
    ):
        world = MixedWorld(consumer_migration_policy=policy)
        old = Classic(world, "a")
        settle(world, old)
        refused = world.join("new").error
        assert refused is (ErrorCode.none if upgrades else ErrorCode.group_id_not_found)
        world = MixedWorld(consumer_migration_policy=policy)
        new, old = Modern(world, "new"), Classic(world, "a")
        settle(world, new, old)
        assert old.owned
        new.leave()
        assert isinstance(world.groups.find(GROUP), ClassicGroup) is downgrades
        settle(world, old)
        assert old.owned == ALL


def test_other_protocols_and_refused_requests_change_no_group() -> None:
    world = MixedWorld()
    old = Classic(world, "a")
    settle(world, old)
    size = len(world.log)
    assert world.join("new", owned=None).error is ErrorCode.invalid_request
    assert len(world.log) == size
    world.join("new")
    connect = Join(
        group_id=GROUP,
        member_id="",
        instance_id=None,
        new_member_id="w",
        client_id="",
        client_host="",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="connect",
        protocols=(GroupProtocol("default", b""),),
        needs_member_id=False,
        can_skip_assignment=False,
    )
    answer = world.do(connect)
    assert isinstance(answer, JoinAnswer)
    assert answer.error is ErrorCode.inconsistent_group_protocol


def test_classic_members_are_fenced_with_the_errors_they_know() -> None:
    world = MixedWorld()
    old, new = Classic(world, "a"), Modern(world, "new")
    settle(world, old, new)
    for generation, member_id, error in (
        (old.generation, old.member_id, ErrorCode.none),
        (old.generation + 1, old.member_id, ErrorCode.illegal_generation),
        (old.generation, "nobody", ErrorCode.unknown_member_id),
        (new.epoch, "new", ErrorCode.unknown_member_id),
    ):
        beat = Heartbeat(group_id=GROUP, generation=generation, member_id=member_id)
        assert world.do(beat) == CodeAnswer(error=error)
    kept, lost = min(old.owned), min(ALL - old.owned)
    for generation, partition, error in (
        (old.generation, lost, ErrorCode.none),
        (old.generation + 1, kept, ErrorCode.illegal_generation),
        (old.generation - 1, kept, ErrorCode.none),
        (old.generation - 1, lost, ErrorCode.illegal_generation),
    ):
        commit = CommitOffsets(
            group_id=GROUP,
            generation=generation,
            member_id=old.member_id,
            instance_id=None,
            offsets=(("clicks", partition, CommittedOffset(5, -1, "", 1_000_000)),),
            knows_epochs=True,
        )
        assert world.do(commit).error is error  # type: ignore[attr-defined]


def test_a_static_member_changes_the_protocol_at_its_restart_and_keeps_its_place() -> None:
    world = MixedWorld()
    static, other = Classic(world, "a", instance="one"), Classic(world, "b")
    settle(world, static, other)
    kept = static.owned
    back = world.join("a2", instance_id="one")
    assert back.error is ErrorCode.none
    assert world.group.target_of("a2") == {CLICKS: kept}
    assert world.group.find_instance("one") == "a2"


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    world = MixedWorld()
    static, new = Classic(world, "a", instance="one"), Modern(world, "new")
    settle(world, static, new)
    removed = world.do(Leave(group_id=GROUP, members=(LeavingMember("", "one"),)))
    assert isinstance(removed, LeaveAnswer)
    assert removed.members[0].error is ErrorCode.none
    settle(world, new)
    assert new.owned == ALL


def test_who_was_told_to_join_again_and_does_not_is_removed() -> None:
    world = MixedWorld()
    old, new = Classic(world, "a"), Modern(world, "new")
    settle(world, old, new)
    world.image = image_of({"clicks": 6})
    new.live()
    beat = Heartbeat(group_id=GROUP, generation=old.generation, member_id=old.member_id)
    for _ in range(12):
        assert world.do(beat).error is ErrorCode.rebalance_in_progress  # type: ignore[attr-defined]
        world.wait(4_999)
        new.live()
    world.wait(20)
    assert old.member_id not in world.group.subscriptions


def test_who_has_gone_is_not_told_to_join_any_more() -> None:
    world = MixedWorld()
    old, new = Classic(world, "a"), Modern(world, "new")
    settle(world, old, new)
    world.image = image_of({"clicks": 6})
    new.live()
    beat = Heartbeat(group_id=GROUP, generation=old.generation, member_id=old.member_id)
    assert world.do(beat).error is ErrorCode.rebalance_in_progress  # type: ignore[attr-defined]
    assert world.group.told_to_join == {old.member_id}
    world.do(Leave(group_id=GROUP, members=(LeavingMember(old.member_id),)))
    assert not world.group.told_to_join


def test_who_is_refused_does_not_end_the_classic_group_whose_members_have_gone() -> None:
    world = MixedWorld()
    old = Classic(world, "a")
    settle(world, old)
    old.leave()
    size = len(world.log)
    assert world.join("new", owned=None).error is ErrorCode.invalid_request
    assert world.join("new", assignor="mine").error is ErrorCode.unsupported_assignor
    assert len(world.log) == size
    group = world.groups.find(GROUP)
    assert isinstance(group, ClassicGroup)
    assert group.stored is not None  # it says since when the offsets age
    assert world.join("new").error is ErrorCode.none


def test_members_go_on_when_the_change_of_their_group_could_not_be_logged() -> None:
    world = MixedWorld(initial_rebalance_delay_ms=3_000)
    old = Classic(world, "a")
    old.join()
    world.writes_fail = True
    assert world.join("new").error is ErrorCode.coordinator_not_available
    world.writes_fail = False
    group = world.groups.find(GROUP)
    assert isinstance(group, ClassicGroup)
    assert GroupTimer(GroupTimerKind.JOIN, GROUP) in world.timers
    old.look()
    old.live()
    assert old.owned == ALL, "all who were in have joined again"


def test_who_was_told_to_join_is_waited_for_though_its_leaving_could_not_be_logged() -> None:
    world = MixedWorld()
    old, new = Classic(world, "a"), Modern(world, "new")
    settle(world, old, new)
    world.image = image_of({"clicks": 6})
    new.live()
    beat = Heartbeat(group_id=GROUP, generation=old.generation, member_id=old.member_id)
    assert world.do(beat).error is ErrorCode.rebalance_in_progress  # type: ignore[attr-defined]
    world.writes_fail = True
    world.do(Leave(group_id=GROUP, members=(LeavingMember(old.member_id),)))
    world.writes_fail = False
    assert world.do(beat).error is ErrorCode.rebalance_in_progress  # type: ignore[attr-defined]
    assert world.group.join_timer(old.member_id) in world.timers


steps = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("live", "live", "live", "live", "start", "start", "leave", "crash"),
                *("pause", "restart", "disk fails", "disk works"),
            )
        ),
        st.integers(0, 4),
    ),
    max_size=50,
)


@settings(max_examples=250, deadline=None)
@given(steps, st.sampled_from((0, 3_000)), st.sampled_from((0, 1_000, 15_000)))
def test_in_mixed_groups_every_partition_has_one_reader_in_the_end(
    steps: Sequence[tuple[str, int]], delay_ms: int, interval_ms: int
) -> None:
    world = MixedWorld(
        initial_rebalance_delay_ms=delay_ms, consumer_assignment_interval_ms=interval_ms
    )
    members: dict[int, Classic | Modern] = {}
    made = 0
    for what, number in steps:
        member = members.get(number)
        match what:
            case "restart":
                world.restart()
                for one in members.values():
                    if isinstance(one, Classic):
                        one.on_coordinator_lost()
            case "pause":
                world.wait(7_000)
            case "disk fails" | "disk works":
                world.writes_fail = what == "disk fails"
            case "start" if member is None:
                made += 1
                name = f"m{made}"
                members[number] = (
                    Modern(world, name)
                    if number < 2
                    else Classic(world, name, cooperative=number == 4)
                )
            case _ if member is None:
                pass
            case "live":
                member.live()
            case "leave":
                member.leave()
                del members[number]
            case "crash":
                del members[number]
    world.writes_fail = False
    kinds = {one.cooperative for one in members.values() if isinstance(one, Classic)}
    settle(world, *members.values(), rounds=60)
    if members and len(kinds) < 2:  # eager and cooperative ones cannot be in one group
        owned = sorted(one for member in members.values() for one in member.owned)
        assert owned == sorted(ALL)
