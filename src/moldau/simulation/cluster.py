"""A whole cluster in one process, on virtual time, with faults from a seed.

The brokers are the production code. Everything that could differ between two runs (time, network,
disks, threads, randomness, the order of callbacks) comes from the seed, so a failing seed fails in
the same way each time:

    outcome = SimulatedCluster(seed=7).run()
    outcome.require_success()              # raises SimulationFailure: seed, schedule, events

Or a story of one's own:

    async def story(cluster: SimulatedCluster) -> None:
        await cluster.begin()
        cluster.machines[1].lose_power()
        await cluster.sleep(5)
        await cluster.heal()

    SimulatedCluster(seed=7, brokers=3).run(story)

Operators move partitions about meanwhile, elect leaders, add partitions (`operations`).
Clients produce with acks=all and acks=1, read and commit all the while; `history` says
what they must never see, and at the end everything that was promised is looked up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any, Final

from moldau.broker.server import BrokerServer
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.model import TopicPartition
from moldau.simulation.access import ClusterAccess
from moldau.simulation.cleanup import ClusterCleanup
from moldau.simulation.clients import Client, Committer, SimulatedReader, draw_habits
from moldau.simulation.fault_plan import (
    ON_ONE_MACHINE,
    FaultKind,
    PlannedFault,
    PlannedOperation,
    draw_plan,
)
from moldau.simulation.faults import JITTER_SECONDS, POWER_LOSS_SHARE, ClusterFaults, lose_all_power
from moldau.simulation.history import ClusterHistory, ClusterWatermarks, StoredBatch
from moldau.simulation.machine import (
    DATA_FOLDER,
    LogCapture,
    SimulatedMachine,
    World,
    find_log_end,
    list_logs,
    read_log,
)
from moldau.simulation.observer import (
    ClusterImages,
    ClusterObserver,
    CommittedOffsets,
    describe_states,
)
from moldau.simulation.operations import ClusterOperations, OperationFamily, check_branches
from moldau.simulation.share_groups import ClusterShares
from moldau.simulation.streams_groups import ClusterStreams
from moldau.simulation.transactions import ClusterTransactions
from moldau.simulation.virtual_loop import StuckError, quiet_destructors
from moldau.simulation.workload import TOPIC, ClientFamily, Workload

SESSION_SECONDS: Final = 1.5
_QUIET_SECONDS: Final = 1.0  # before the first fault
_FAULTY_SECONDS: Final = 7.0
_HEALING_SECONDS: Final = 45.0
_ENDING_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 1.0
_LONG_LINKS_SHARE: Final = 0.3  # of the seeds
_LONGEST_LINK_SECONDS: Final = 0.1
_TELLING_SECONDS: Final = 0.02
"""A session that is ended before its time is unknown to its broker for so long at most."""

OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "num.partitions": "1",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
        "offsets.commit.timeout.ms": "1500",
        "group.min.session.timeout.ms": "500",
        "group.consumer.min.session.timeout.ms": "500",
        "group.consumer.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "250",
        "auto.create.topics.enable": "false",
        "replica.lag.time.max.ms": "1500",
        "replica.fetch.wait.max.ms": "300",
        "replica.fetch.backoff.ms": "100",
        "replica.socket.timeout.ms": "1500",
        "request.timeout.ms": "1500",
        "replica.high.watermark.checkpoint.interval.ms": "1000",
        "log.flush.offset.checkpoint.interval.ms": "1000",
        "log.flush.start.offset.checkpoint.interval.ms": "60000",
        "controlled.shutdown.retry.backoff.ms": "200",
        "zookeeper.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
        "log.roll.ms": "2500",
        "log.cleaner.enable": "false",
        "log.message.timestamp.after.max.ms": str((1 << 63) - 1),  # wall clocks jump
    }
)

Story = Callable[["SimulatedCluster"], Coroutine[Any, Any, None]]


class _GivenUpError(Exception):
    """It is of no use to go on."""


class SimulatedCluster:
    """One run of one seed. `run` once."""

    def __init__(
        self,
        *,
        seed: int,
        brokers: int | None = None,
        options: Mapping[str, str] | None = None,
        partitions: int = 2,
        kinds: Sequence[FaultKind] | None = None,
        operations: Sequence[OperationFamily] | None = None,
        transactions: bool | None = False,
        shares: bool | None = False,
        streams: bool | None = False,
        access: bool | None = False,
        is_served: bool = False,
    ) -> None:
        """Without a number, the seed decides between three, four and five brokers.

        `kinds` are the faults that the seed may choose from; without them, all. `operations` are
        the families of operations that it has; without them, it chooses from all, or has none.
        `transactions`, `shares` and `streams` say whether there are any transactions, share groups
        and streams groups, and `access` whether there are users whose rights and quotas change;
        with None, the seed does.
        With `is_served` all brokers are on one machine, and their supervisor serves the store.
        """
        self.seed = seed
        self.world = World(seed, SESSION_SECONDS, is_served=is_served)
        random = self.world.streams.stream("shape")
        count = random.choice((3, 3, 3, 4, 5))
        self.broker_ids = tuple(range(1, (brokers or count) + 1))
        self.history = ClusterHistory(self.world.loop.time)
        self.observer = ClusterObserver(
            self.history,
            self.world.log,
            self._find_log_end,
            lambda broker_id: self.machines[broker_id].is_running,
        )
        self._images = ClusterImages(self.history)
        self._watermarks = ClusterWatermarks(self.history)
        self.history.on_promise = self._look_at
        self.world.service.observers += [self.observer, self._images]
        self.habits = draw_habits(self.world.streams.stream("habits"))
        self.offsets = CommittedOffsets(self.history, self.observer, self._read_log)
        self.cleanup = ClusterCleanup(self.world.streams.stream("cleanup"), self.history)
        self.transactions = ClusterTransactions(
            self.world.streams.stream("transactions"), self.history, TOPIC, transactions
        )
        self.shares = ClusterShares(
            self.world.streams.stream("shares"),
            self.history,
            self.observer,
            self.transactions,
            shares,
        )
        self.streams = ClusterStreams(self.world.streams.stream("streams"), self.history, streams)
        self.access = ClusterAccess(self.world.streams.stream("access"), self.history, access)
        self.world.service.observers.append(self.access.book)
        every: tuple[ClientFamily, ...] = (
            self.cleanup,
            self.transactions,
            self.shares,
            self.streams,
            self.access,
        )
        families = [family for family in every if family.is_on]
        replicas = str(min(3, len(self.broker_ids)))
        min_in_sync = "2" if int(replicas) > 1 else "1"
        static = {
            **OPTIONS,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "min.insync.replicas": min_in_sync,
            "leader.imbalance.check.interval.seconds": str(
                self.world.streams.stream("balance").choice((2, 300, 300))
            ),
            **self.habits.broker_options,
            **{
                name: value
                for family in families
                for name, value in family.options(replicas, min_in_sync).items()
            },
            **(options or {}),
        }
        self.replicas_per_partition = int(static["default.replication.factor"])
        self.min_in_sync = self.observer.min_in_sync = int(static["min.insync.replicas"])
        self.machines = {
            broker_id: SimulatedMachine(
                self.world, broker_id, {**static, "broker.rack": self.habits.rack_of(broker_id)}
            )
            for broker_id in self.broker_ids
        }
        for machine in self.machines.values():
            machine.on_serving = partial(self._watch_images, machine.host)
        if self.world.supervisor is not None:
            self.world.supervisor.is_free = lambda: (
                not any(machine.is_running for machine in self.machines.values())
            )
            self.world.supervisor.on_serving = self._start_wanted
        self.partitions = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self.workload = Workload(self, self.partitions, families)
        self.workload.has_other_group = self.shares.is_on or self.streams.is_on
        self.operations = ClusterOperations(self, operations)
        self._delays: dict[tuple[str, str], float] = {}  # of links, while nothing is wrong
        self.faults = ClusterFaults(
            self.world,
            self.machines,
            self.observer,
            self.history,
            self._delays,
            self.cleanup.comparable,
        )
        self.plan: list[PlannedFault | PlannedOperation] = []
        self.kinds = ON_ONE_MACHINE if is_served and kinds is None else kinds
        self._capture = LogCapture(self.world.log)
        self._set_delays()

    def _start_wanted(self) -> None:
        for machine in self.machines.values():
            self.world.clock.call_later(0, machine.start_if_wanted)

    def _watch_images(self, host: str, broker: BrokerServer) -> None:
        """See every image that a broker publishes while it serves."""

        def see(former: MetadataImage, image: MetadataImage, changed: frozenset[str]) -> None:
            for name in sorted(changed & image.topics.keys()):
                self._images.check_topic(host, image.topics[name])

        publisher = broker.services.publisher
        for topic in publisher.image.topics.values():
            self._images.check_topic(host, topic)
        publisher.subscribe(see)

    def _set_delays(self) -> None:
        random = self.world.streams.stream("delays")
        machines = [each.host for each in self.machines.values()]
        hosts = [self.world.service.host, *machines]
        for number, one in enumerate(hosts):
            for other in (*hosts[:number], "clients"):
                self._delays[one, other] = random.uniform(0.0002, 0.003)
        self._delays |= _draw_long_links(self.world.streams.stream("long links"), machines)
        for (one, other), seconds in self._delays.items():
            self.world.network.set_delay(one, other, seconds, jitter_seconds=JITTER_SECONDS)

    # Running

    def run(self, story: Story | None = None) -> SimulationOutcome:
        """Play the story (the seed's own without one), then look at everything."""
        logger = logging.getLogger("moldau")
        propagates = logger.propagate
        logger.propagate = False
        logger.addHandler(self._capture)
        try:
            self.world.loop.run(self._play(story or _seeds_own))
        except StuckError as error:
            self.history.report("LIVE", str(error))
        except _GivenUpError:
            self.world.log.note("given up")
        finally:
            logger.removeHandler(self._capture)
            logger.propagate = propagates
            with quiet_destructors():
                outcome = self._outcome()
                self._forget()
        return outcome

    def _forget(self) -> None:
        """Let go of all that lived."""
        for machine in self.machines.values():
            machine.forget()
        self.operations.release_operators()
        self.workload.release_clients()
        self.world.close()

    def _outcome(self) -> SimulationOutcome:
        loop = self.world.loop
        starts = (error for each in self.machines.values() for error in each.failures)
        faults = dict.fromkeys((*self._capture.errors, *loop.failures, *starts))
        return SimulationOutcome(
            seed=self.seed,
            brokers=len(self.broker_ids),
            schedule=tuple(map(str, self.plan)),
            violations=(*map(str, self.history.violations), *faults),
            events=tuple(self.world.log.lines),
            digest=self.world.log.digest(),
            steps=loop.steps,
            virtual_seconds=loop.time(),
            acknowledged=self.history.acknowledged_records,
            seen=self.history.seen_records,
            commits=self.history.commits_answered,
            transactions=self.transactions.committed,
            shared=self.shares.confirmed,
            denied=self.access.denials,
        )

    async def _play(self, story: Story) -> None:
        task = self.world.story.spawn(story(self))
        await task

    async def sleep(self, seconds: float) -> None:
        await self.world.clock.sleep(seconds)

    def pass_days(self, days: float) -> None:
        """Let days pass by the wall clocks of all machines and clients at once. What expires by
        them expires with the next round of its task; sessions and members do not notice."""
        self.world.log.note(f"{days:g} days pass")
        self.world.loop.pass_by_wall_clock(int(days * 86_400_000))

    # The parts of a story

    async def begin(self) -> None:
        """Start all brokers, make the topic, and let the clients work."""
        if self.world.supervisor is not None:
            self.world.supervisor.start()
        for machine in self.machines.values():
            machine.start()
        await self._wait_until_whole("after the first start")
        config = {"compression.type": self.habits.topic_codec}
        await self._within(
            _HEALING_SECONDS,
            self.workload.make_topic("maker", TOPIC, len(self.partitions), config),
            "the topic is not made",
        )
        await self._within(
            _HEALING_SECONDS, self.workload.make_topics(), "the topics of a family are not made"
        )
        self.workload.start_clients()
        self.world.story.kept.append(self.world.story.spawn(self._look_now_and_then()))

    async def heal(self) -> None:
        """End all faults and wait until the cluster is whole."""
        self.faults.end_all()
        await self._within(
            _HEALING_SECONDS, self.operations.wait_until_done(), "an operation has no end"
        )
        await self._wait_until_whole("after healing")

    async def finish(self) -> None:
        """Let the clients come to an end, and look up everything that was promised."""
        for client in self.workload.clients:
            await self._within(
                _ENDING_SECONDS, self._wait_for_progress(client), f"{client.name} does nothing"
            )
        for client, task in self.workload.stop():
            await self._within(_ENDING_SECONDS, task, f"{client.name} does not come to its end")
        await self._wait_until_whole("at the end")
        if self.history.violations:
            return
        await self._within(
            _ENDING_SECONDS,
            self.transactions.check_end(self.workload),
            "the results cannot be read",
        )
        await self._within(
            _ENDING_SECONDS, self.shares.check_end(self.workload), "the last consumer has no end"
        )
        await self._within(
            _ENDING_SECONDS, self.access.check_end(self.workload), "the last users have no end"
        )
        await self._within(_ENDING_SECONDS, self._read_everything(), "the logs cannot be read")
        self._compare_replicas()
        check_branches(self)
        self.history.check_moves(self.observer.replicas)

    async def _wait_for_progress(self, client: Client) -> None:
        """One that came late has to do something before the end, too."""
        while not client.progress:
            await self.sleep(0.1)

    async def _read_everything(self) -> None:
        for partition in self.partitions:
            name = f"final{partition.partition}"
            reader = self.workload.make_reader(name, partition, SimulatedReader)
            await reader.read_until(self.history.promised_end(partition))
            self.history.check_final_log(partition, "the leader", reader.values, 0)
            idempotent = (each for each in reader.values.values() if each.startswith(b"a"))
            self.history.check_order(partition, idempotent)
        for client in self.workload.clients:
            if isinstance(client, Committer):
                await client.check_last_offset()

    def _compare_replicas(self) -> None:
        for partition, replicas in self.observer.replicas.items():
            logs = {
                self.machines[replica].host: read_log(
                    self.machines[replica].files, DATA_FOLDER, partition
                )
                for replica in replicas
            }
            end = min((log[-1].end_offset if log else 0) for log in logs.values())
            self.cleanup.check_equal(partition, logs, end)
        self.cleanup.check_replicas(self.machines, self.observer.replicas)

    async def _wait_until_whole(self, when: str) -> None:
        end = self.world.loop.time() + _HEALING_SECONDS
        flaw: str | None = "not looked at yet"
        while flaw is not None:
            if self.world.loop.time() > end:
                self.history.report(
                    "LIVE", f"{when}: {flaw}; {describe_states(self.observer.states)}"
                )
                raise _GivenUpError
            await self.sleep(0.1)
            flaw = self.observer.find_flaw(self.broker_ids) or self._find_leftover()
        self.world.log.note(f"whole {when}")

    def _find_leftover(self) -> str | None:
        """A log on a disk whose broker holds no replica of it (any more), or nobody who would tell
        of brokers that are gone."""
        if self.world.supervisor is not None and not self.world.supervisor.is_serving:
            return "nobody serves the coordination store"
        for broker_id, machine in self.machines.items():
            for partition in list_logs(machine.files, DATA_FOLDER):
                if broker_id not in self.observer.replicas.get(partition, ()):
                    return f"{machine.host} has a log of {partition}, and no replica"
        return None

    async def _within(
        self, seconds: float, work: Coroutine[Any, Any, None] | asyncio.Task[None], complaint: str
    ) -> None:
        task = asyncio.ensure_future(work)
        done, _ = await asyncio.wait((task,), timeout=seconds)
        if not done:
            self.history.report("LIVE", complaint)
            self.world.story.kept.append(task)
            raise _GivenUpError
        task.result()

    async def _look_now_and_then(self) -> None:
        while True:
            await self.sleep(_LOOK_SECONDS)
            self.faults.look_at_logs()
            for machine in self.machines.values():
                if machine.broker is not None:
                    self._watermarks.see(machine.host, machine.broker.services.partitions)

    def _look_at(self, partition: TopicPartition) -> None:
        """More was promised of it."""
        self.observer.check_in_sync(partition)
        for machine in self.machines.values():
            if machine.broker is not None:
                held = machine.broker.services.partitions.find(*partition)
                self._watermarks.see(machine.host, () if held is None else (held,))

    def _find_log_end(self, broker_id: int, partition: TopicPartition) -> int:
        machine = self.machines[broker_id]
        if machine.broker is not None:
            held = machine.broker.services.partitions.find(*partition)
            if held is not None:
                return held.log.log_end_offset
        return find_log_end(machine.files, DATA_FOLDER, partition)

    def _read_log(self, broker_id: int, partition: TopicPartition) -> list[StoredBatch]:
        return read_log(self.machines[broker_id].files, DATA_FOLDER, partition)

    def had_enough_in_sync(self, partition: TopicPartition, since: float) -> bool:
        """`min.insync.replicas` counts as many replicas as there are, at most (KIP-966).

        A leader may not have heard yet that somebody has left, for as long as its lease lasts. What
        it acknowledges then is with those who have left, too: they are eligible (ELR-1).
        """
        replicas = len(self.observer.replicas.get(partition, ()))
        wanted = min(self.min_in_sync, replicas)
        return self.observer.most_in_sync(partition, since - SESSION_SECONDS) >= wanted

    def had_session(self, broker_id: int, since: float, until: float) -> bool:
        records = self.world.service.records_of(self.machines[broker_id].host)
        latest = since - _TELLING_SECONDS
        return any(each.began <= until and each.ended >= latest for each in records)


def _draw_long_links(random: Random, machines: Sequence[str]) -> dict[tuple[str, str], float]:
    """In some seeds the brokers, or some of them, are far from each other, and in no other.

    What a broker says then arrives long after what the coordination service has told others.
    """
    if random.random() >= _LONG_LINKS_SHARE:
        return {}
    nearest = random.choice((0.03, 0.06))
    share = random.choice((0.5, 1.0))
    return {
        (one, other): random.uniform(nearest, _LONGEST_LINK_SECONDS)
        for number, one in enumerate(machines)
        for other in machines[:number]
        if random.random() < share
    }


async def _seeds_own(cluster: SimulatedCluster) -> None:
    await cluster.begin()
    await cluster.sleep(_QUIET_SECONDS)
    start = cluster.world.loop.time()
    end = start + _FAULTY_SECONDS
    faults = draw_plan(
        cluster.world.streams.stream("plan"),
        cluster.broker_ids,
        start_seconds=start,
        end_seconds=end,
        session_seconds=SESSION_SECONDS,
        kinds=cluster.kinds,
    )
    operations = cluster.operations.draw(start, end)
    cluster.plan = sorted((*faults, *operations), key=lambda each: each.at_seconds)
    for planned in cluster.plan:
        await cluster.sleep(max(0.0, planned.at_seconds - cluster.world.loop.time()))
        if isinstance(planned, PlannedFault):
            cluster.faults.strike(planned)
        else:
            cluster.operations.start_operation(planned)
    await cluster.sleep(1.0)
    power = cluster.world.streams.stream("power")
    if cluster.kinds is None and power.random() < POWER_LOSS_SHARE:
        await lose_all_power(cluster, power)
    else:
        await cluster.heal()
    await cluster.sleep(0.5)
    await cluster.finish()


class SimulationFailure(AssertionError):
    """A promise was broken. The message says which, and how to see it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOutcome:
    """What a run was."""

    seed: int
    brokers: int
    schedule: tuple[str, ...]
    violations: tuple[str, ...]
    events: tuple[str, ...]
    digest: str  # of the events: equal for equal runs
    steps: int
    virtual_seconds: float
    acknowledged: int
    seen: int
    commits: int
    transactions: int  # whose commit was confirmed
    denied: int  # attempts of users who had no right at that time
    shared: int  # records that consumers have accepted or rejected, with the broker's word for it

    def describe(self, event_lines: int = 200) -> str:
        return "\n".join(
            (
                f"seed {self.seed} with {self.brokers} brokers broke a promise:",
                *(f"  {violation}" for violation in self.violations),
                "schedule:",
                *(f"  {line}" for line in self.schedule),
                f"the last {event_lines} of {len(self.events)} events:",
                *(f"  {line}" for line in self.events[-event_lines:]),
                f"again: make campaign SEEDS=1 FIRST={self.seed} "
                f"(python -m moldau.simulation.campaign --first {self.seed} --seeds 1 --events)",
            )
        )

    def require_success(self) -> None:
        if self.violations:
            raise SimulationFailure(self.describe())
