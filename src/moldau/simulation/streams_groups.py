"""A streams group (KIP-1071) in a simulated cluster: members that run tasks, and who has which.

There is no client of it here: a member is a loop of heartbeats in a process of its own. It brings
the topology, opens the tasks that it is given, closes those that it is to give up, which takes a
while, says so, and commits in what it has. In some seeds the tasks read a topic of the producers,
in others one of their own, through a topic that the brokers make for them. Processes crash, are
frozen and come back to what others have meanwhile, or leave and are followed by another.
`StreamsGroupHistory` knows what must not be (STG-1, STG-2, STG-4). When everything has healed, each
task is run by one member, and nobody has two more than another (STG-5). A shell.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, cast

from moldau.client.cluster import ClusterClient
from moldau.errors import ClientError, ErrorCode, KafkaError
from moldau.model import TopicPartition
from moldau.simulation.clients import (
    Client,
    ClientProcess,
    ClientSetup,
    RestartedClient,
    call_coordinator,
    commit_values,
    draw_random,
)
from moldau.simulation.consumer_groups import StreamsGroupHistory
from moldau.simulation.history import ClusterHistory
from moldau.simulation.virtual_loop import ProcessClock, SimulatedProcess
from moldau.simulation.workload import TOPIC, Workload
from moldau.wire.apis import OFFSET_COMMIT, STREAMS_GROUP_HEARTBEAT, Api

if TYPE_CHECKING:
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse
    from kio.schema.streams_group_heartbeat.v0.response import (
        StreamsGroupHeartbeatResponse,
        TaskIds,
    )

_SHARE_OF_SEEDS: Final = 0.12
_WORDS: Final = "words"
_WORDS_PARTITIONS: Final = 3
_SESSION_MS: Final = 1_000
_COMMIT_VERSION: Final = 9
_LEAVING_EPOCH: Final = -1
_LONGEST_FREEZE_SECONDS: Final = 2.5
_LONGEST_CLOSE_SECONDS: Final = 0.5  # of a task
_SLOW_SHARE: Final = 0.1  # of the tasks that take longer than anybody waits for
_CONVERGING_SECONDS: Final = 20.0
_NAP_SECONDS: Final = 0.1

_PASSING: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.request_timed_out,
    }
)
_OUTSIDE: Final = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch})

Task = TopicPartition
"""A subtopology and a partition."""


class _Program:
    """What runs in a member's process."""

    def __init__(
        self,
        place: SimulatedStreamsMember,
        member_id: str,
        process: SimulatedProcess,
        clock: ProcessClock,
        client: ClusterClient,
        random: Random,
    ) -> None:
        self.process = process
        self.is_ending = False
        self.epoch = 0
        self.active: frozenset[Task] = frozenset()
        self._standby: frozenset[Task] = frozenset()
        self._former: tuple[int, Task] | None = None  # what it had in which epoch
        self._told: tuple[frozenset[Task], frozenset[Task]] | None = None  # the brokers know it
        self._place = place
        self._member_id = member_id
        self._clock = clock
        self._client = client
        self._random = random
        self._interval_seconds = 0.1
        self.task = process.spawn(self._run())

    @property
    def is_stable(self) -> bool:
        """Whether it is a member and has said what it runs."""
        return self.epoch > 0 and self._told == (self.active, self._standby)

    async def _run(self) -> None:
        while not self.is_ending:
            try:
                await self._beat()
                if self.active and self._random.random() < 0.5:
                    await self._commit(self.epoch, self._random.choice(sorted(self.active)))
                if self._former is not None and self._random.random() < 0.2:
                    await self._commit(*self._former)  # as if it were late
            except (KafkaError, ClientError):
                self._told = None  # whether it was heard or not: say all of it again
            await self._clock.sleep(self._interval_seconds)
        if self.epoch > 0:
            try:
                await self._call_coordinator(
                    STREAMS_GROUP_HEARTBEAT, self._values(epoch=_LEAVING_EPOCH), 0
                )
            except (KafkaError, ClientError):
                return

    async def _beat(self) -> None:
        said = self.active, self._standby
        values = self._values(epoch=self.epoch)
        if self.epoch == 0 or self._told != said:
            values |= {
                "active_tasks": _rows_of(self.active),
                "standby_tasks": _rows_of(self._standby),
                "warmup_tasks": (),
            }
        if self.epoch == 0:
            values |= {
                "rebalance_timeout": 2 * _SESSION_MS,
                "topology": self._place.topology,
                "process_id": self._place.name,
            }
        asked_at = self._clock.monotonic()
        answer = cast(
            "StreamsGroupHeartbeatResponse",
            await self._call_coordinator(STREAMS_GROUP_HEARTBEAT, values, 0),
        )
        if answer.error_code in _OUTSIDE:
            self.epoch, self._told = 0, None
            self.active = self._standby = frozenset()
        elif answer.error_code is not ErrorCode.none:
            self._told = None
            if answer.error_code not in _PASSING:
                self._place.refuse(f"{self._member_id} hears {answer}")
        else:
            self._told = said
            self.epoch = answer.member_epoch
            self._interval_seconds = answer.heartbeat_interval.total_seconds()
            self._place.group.see_member(self._member_id, self.active, asked_at)
            await self._have(answer, asked_at)

    async def _have(self, answer: StreamsGroupHeartbeatResponse, asked_at: float) -> None:
        """Open and close tasks. Until it has closed one, it has it."""
        place, group = self._place, self._place.group
        place.progress += 1
        if answer.active_tasks is None:
            group.see_assignment(self.epoch, self._member_id, sorted(self.active))
            return
        given = _tasks_of(answer.active_tasks)
        closing = self.active - given
        group.give(self._member_id, given - self.active, asked_at, self._clock.monotonic())
        self.active |= given
        group.see_assignment(self.epoch, self._member_id, sorted(self.active))
        if closing:
            is_slow = self._random.random() < _SLOW_SHARE
            longest = 2 * _LONGEST_FREEZE_SECONDS if is_slow else _LONGEST_CLOSE_SECONDS
            seconds = self._random.uniform(0, longest)
            self._former = self.epoch, min(closing)
            if not place.is_stopping:  # at the end all sessions last, so that the group can rest
                await self._clock.sleep(seconds)
        self.active = given
        self._standby = _tasks_of(answer.standby_tasks or ())

    async def _commit(self, epoch: int, task: Task) -> None:
        group, source = self._place.group, self._place.source_of(task)
        position = max(group.position(task), 0) + 1
        newest = group.newest_of(self._member_id, task)
        values = commit_values(group.name, self._member_id, epoch, source, position)
        answer = await self._call_coordinator(OFFSET_COMMIT, values, _COMMIT_VERSION)
        code = cast("OffsetCommitResponse", answer).topics[0].partitions[0].error_code
        if code is ErrorCode.none:
            group.accept_commit(epoch, newest, task, position)

    async def _call_coordinator(
        self, api: Api, values: Mapping[str, object], version: int
    ) -> object:
        return await call_coordinator(self._client, self._place.group.name, api, values, version)

    def _values(self, *, epoch: int) -> dict[str, object]:
        return {
            "group_id": self._place.group.name,
            "member_id": self._member_id,
            "member_epoch": epoch,
            "endpoint_information_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "topology": None,
            "active_tasks": None,
            "standby_tasks": None,
            "warmup_tasks": None,
            "process_id": None,
            "user_endpoint": None,
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
            "shutdown_application": False,
        }


class SimulatedStreamsMember(RestartedClient[_Program]):
    """One place in the group, and the processes that have it one after the other."""

    _chances = 0.2, 0.45, 0.6

    def __init__(
        self,
        setup: ClientSetup,
        *,
        group: StreamsGroupHistory,
        family: ClusterStreams,
        open_client: Callable[[str, ClientProcess], ClusterClient],
    ) -> None:
        super().__init__(setup)
        self.group = group
        self.topology = family.topology(group.name)
        self._family = family
        self._open_client = open_client
        self._is_refused = False

    @property
    def programs(self) -> Sequence[_Program]:
        return self._programs

    def source_of(self, task: Task) -> TopicPartition:
        return self._family.source_of(self.group.name, task)

    def refuse(self, what: str) -> None:
        if not self._is_refused:
            self._is_refused = True  # said once
            self._history.report("STG-5", what)

    async def _draw_mishap(self) -> None:
        if not self.is_stopping:
            await super()._draw_mishap()

    async def _finish(self) -> None:
        await self._family.wait_until_shared(self)
        await super()._finish()

    def _open_program(self, name: str) -> _Program:
        opened = self._open_process(name)
        random = draw_random(self._random)
        client = self._open_client(name, opened)
        return _Program(self, name, opened.process, opened.clock, client, random)


class ClusterStreams:
    """One for each run."""

    def __init__(self, random: Random, history: ClusterHistory, is_on: bool | None) -> None:
        """`is_on` is for the seed to say if it is None."""
        drawn = random.random() < _SHARE_OF_SEEDS
        self.is_on = drawn if is_on is None else is_on
        self._member_count = random.choice((2, 3))
        self._has_repartition = random.random() < 0.4
        self._options = {
            "group.streams.initial.rebalance.delay.ms": random.choice(("0", "300")),
            "group.streams.assignment.interval.ms": random.choice(("0", "0", "500")),
            "group.streams.num.standby.replicas": random.choice(("0", "1")),
        }
        self._history = history
        self.told: StreamsGroupHistory | None = None  # of the present members
        self._workload: Workload | None = None
        self._is_shared = False  # by all of them, at the end

    def options(self, replicas: str, min_in_sync: str) -> Mapping[str, str]:
        """What brokers are told beside all that holds for every seed."""
        return {
            "group.streams.min.session.timeout.ms": "500",
            "group.streams.session.timeout.ms": str(_SESSION_MS),
            "group.streams.min.heartbeat.interval.ms": "100",
            "group.streams.heartbeat.interval.ms": "250",
            **self._options,
        }

    async def make_topics(self, workload: Workload) -> None:
        if self._has_repartition:
            await workload.make_topic("streams", _WORDS, _WORDS_PARTITIONS, {})

    def clients(self, workload: Workload, suffix: str) -> Sequence[Client]:
        """Members. After a power loss of all machines there is another group."""
        self._workload = workload
        group_id = "w" + suffix.replace("'", "-again")  # it is part of the names of topics
        group = self.told = StreamsGroupHistory(group_id, self._history.report)
        return [
            SimulatedStreamsMember(
                workload.setup(name),
                group=group,
                family=self,
                open_client=workload.open_client,
            )
            for name in (f"w{suffix}-{number}" for number in range(self._member_count))
        ]

    # What they run

    def topology(self, group: str) -> dict[str, object]:
        """Tasks that read one topic; or two kinds, with a topic between them and a store."""
        source = _WORDS if self._has_repartition else TOPIC
        subtopologies = [_subtopology("0", source_topics=(source,))]
        if self._has_repartition:
            between = _repartition_topic(group)
            subtopologies[0]["repartition_sink_topics"] = (between,)
            store = _internal_topic(f"{group}-store-changelog")
            subtopologies.append(
                _subtopology(
                    "1",
                    repartition_source_topics=[_internal_topic(between)],
                    state_changelog_topics=[store],
                )
            )
        return {"epoch": 0, "subtopologies": subtopologies}

    def source_of(self, group: str, task: Task) -> TopicPartition:
        topic = _WORDS if self._has_repartition else TOPIC
        return TopicPartition(_repartition_topic(group) if task.topic == "1" else topic, task[1])

    def _wanted(self) -> Counter[Task]:
        if self._has_repartition:
            return Counter(Task(one, n) for one in "01" for n in range(_WORDS_PARTITIONS))
        leaders = () if self._workload is None else self._workload.leaders()
        places = (partition.topic_partition for _, partition in leaders)
        return Counter(Task("0", place.partition) for place in places if place.topic == TOPIC)

    # At the end

    async def wait_until_shared(self, member: SimulatedStreamsMember) -> None:
        """Until every task is run by one member; then all may leave."""
        left = _CONVERGING_SECONDS
        while (flaw := self._find_flaw()) is not None and not self._is_shared:
            await asyncio.sleep(_NAP_SECONDS)
            left -= _NAP_SECONDS
            if left <= 0:
                member.refuse(flaw)
                break
        self._is_shared = True

    def _find_flaw(self) -> str | None:
        paired = self._paired()
        programs = [program for _, program in paired]
        run = Counter(task for each in programs for task in each.active)
        loads = sorted(len(each.active) for each in programs)
        is_stable = all(each.is_stable for each in programs)
        is_one = len({each.epoch for each in programs}) == 1
        if is_stable and is_one and run == self._wanted() and loads[-1] - loads[0] <= 1:
            return None
        has = {f"{one.name} in epoch {it.epoch}": sorted(it.active) for one, it in paired}
        return f"the tasks {sorted(self._wanted())} are not shared: {has}"

    def _paired(self) -> list[tuple[SimulatedStreamsMember, _Program]]:
        return [
            (each, program)
            for each in (() if self._workload is None else self._workload.clients)
            if isinstance(each, SimulatedStreamsMember)
            for program in each.programs
        ]


def _subtopology(name: str, **values: object) -> dict[str, object]:
    return {
        "subtopology_id": name,
        "source_topics": (),
        "source_topic_regex": (),
        "state_changelog_topics": [],
        "repartition_sink_topics": (),
        "repartition_source_topics": [],
        "copartition_groups": [],
        **values,
    }


def _repartition_topic(group: str) -> str:
    return f"{group}-again-repartition"


def _internal_topic(name: str) -> dict[str, object]:
    return {"name": name, "partitions": 0, "replication_factor": 0, "topic_configs": []}


def _tasks_of(rows: Sequence[TaskIds]) -> frozenset[Task]:
    return frozenset(Task(row.subtopology_id, int(one)) for row in rows for one in row.partitions)


def _rows_of(tasks: frozenset[Task]) -> list[dict[str, object]]:
    return [
        {
            "subtopology_id": name,
            "partitions": tuple(sorted(number for one, number in tasks if one == name)),
        }
        for name in sorted({one for one, _ in tasks})
    ]
