"""Faults of a simulated cluster: machines, disks, links, power, mistakes of operators. A shell."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Protocol

from moldau.cluster import znodes
from moldau.coordination.port import Create, SetData
from moldau.coordination.tree import ROOT, DeleteTree, TreeOperation
from moldau.model import BrokerId, TopicPartition
from moldau.simulation.fault_plan import FaultKind, PlannedFault
from moldau.simulation.history import ClusterHistory, StoredBatch
from moldau.simulation.machine import DATA_FOLDER, SimulatedMachine, World, find_topic_id, read_log
from moldau.simulation.memory_files import MemoryFiles
from moldau.simulation.observer import ClusterObserver
from moldau.simulation.operations import OperationFamily, Operator
from moldau.simulation.share_groups import JOBS
from moldau.simulation.transactions import SINKS
from moldau.simulation.workload import Workload
from moldau.storage.rules.file_names import LOG_SUFFIX

# Faults stay within the fault model (`docs/replication.md`): of the replicas in sync or eligible,
# one keeps its data. A fault that would go further is left out. Where one in sync is enough to
# commit, nobody is eligible: there, one that is well is not troubled either while it is the only
# one.


JITTER_SECONDS = 0.004
_SLOW_DISK_SECONDS = 0.3
_LONGEST_JUMP_MS = 7_200_000
_UNMOUNTED_SECONDS = 1.5
"""So long is a broker without its disk, at least."""
_STOPPING_SECONDS = 1.0
"""So long may a controlled shutdown take, mostly."""
_RECOVERY_SECONDS = 3.0
"""So long after its fault may a broker still be without a session."""

_TROUBLING = frozenset(
    {
        FaultKind.CRASH,
        FaultKind.UNMOUNT,
        FaultKind.STOP,
        FaultKind.LOSE_FILES,
        FaultKind.PAUSE,
        FaultKind.ISOLATE,
        FaultKind.CUT_COORDINATION,
        FaultKind.CUT_COORDINATION_ONE_WAY,
        FaultKind.EXPIRE,
        FaultKind.SLOW_DISK,
    }
)


class ClusterFaults:
    """Owned by the story's task."""

    def __init__(
        self,
        world: World,
        machines: Mapping[int, SimulatedMachine],
        observer: ClusterObserver,
        history: ClusterHistory,
        delays: Mapping[tuple[str, str], float],
        comparable: Callable[[TopicPartition, Sequence[StoredBatch]], Sequence[StoredBatch]],
    ) -> None:
        """`delays` of the links between hosts, in seconds, while nothing is wrong with them.

        `comparable` makes of a log what may be compared with what it was before.
        """
        self._delays = delays
        self._comparable = comparable
        self._world = world
        self._machines = machines
        self._observer = observer
        self._history = history
        self._slow: dict[tuple[str, str], None] = {}  # links
        self._troubled_until: dict[int, float] = {}
        self._actions: dict[FaultKind, Callable[[PlannedFault], None]] = {
            FaultKind.CRASH: self._crash,
            FaultKind.CRASH_CONTROLLER: self._crash_controller,
            FaultKind.CRASH_ALL: self._crash_all,
            FaultKind.POWER_LOSS: self._lose_power,
            FaultKind.EMPTY_DISK: self._replace_disk,
            FaultKind.UNMOUNT: self._unmount,
            FaultKind.STOP: self._stop,
            FaultKind.PAUSE: self._pause,
            FaultKind.CUT: lambda fault: self._cut(fault, self._other(fault)),
            FaultKind.CUT_ONE_WAY: lambda fault: self._cut(fault, self._other(fault), one_way=True),
            FaultKind.ISOLATE: self._isolate,
            FaultKind.CUT_COORDINATION: lambda fault: self._cut(fault, world.service.host),
            FaultKind.CUT_COORDINATION_ONE_WAY: lambda fault: self._cut(
                fault, world.service.host, one_way=True
            ),
            FaultKind.DROP_COORDINATION: self._drop_coordination,
            FaultKind.COORDINATION_OUTAGE: self._coordination_outage,
            FaultKind.EXPIRE: self._expire,
            FaultKind.DROP_CONNECTIONS: self._drop_connections,
            FaultKind.SLOW_LINK: self._slow_link,
            FaultKind.SLOW_DISK: self._slow_disk,
            FaultKind.FAIL_WRITE: self._fail_write,
            FaultKind.FAIL_SYNC: self._fail_sync,
            FaultKind.CLOCK_JUMP: self._jump,
            FaultKind.LOSE_FILES: self._stop_to_lose_files,
            FaultKind.ELECT_COORDINATION: self._elect_coordination,
            FaultKind.CUT_OFF_COORDINATION: self._cut_off_coordination,
            FaultKind.KILL_SUPERVISOR: self._kill_supervisor,
            FaultKind.PAUSE_SUPERVISOR: self._pause_supervisor,
        }

    def strike(self, fault: PlannedFault) -> None:
        troubled = self._troubled_by(fault)
        if troubled and not self._observer.may_trouble((*troubled, *self._troubled())):
            self._world.log.note(f"left out: {fault}")
            return
        for broker_id in troubled:
            until = self._world.loop.time() + fault.seconds + _RECOVERY_SECONDS
            self._troubled_until[broker_id] = max(until, self._troubled_until.get(broker_id, 0.0))
        self._world.log.note(f"fault: {fault}")
        self._actions[fault.kind](fault)

    def _troubled_by(self, fault: PlannedFault) -> tuple[int, ...]:
        """The brokers that may lose their sessions."""
        match fault.kind:
            case (
                FaultKind.CRASH_ALL
                | FaultKind.COORDINATION_OUTAGE
                | FaultKind.ELECT_COORDINATION
                | FaultKind.CUT_OFF_COORDINATION  # clients of other servers may come to this one
                | FaultKind.KILL_SUPERVISOR
                | FaultKind.PAUSE_SUPERVISOR
            ):
                return tuple(self._machines)
            case FaultKind.CRASH_CONTROLLER:
                return (self._observer.controller or fault.broker,)
            case kind if kind in _TROUBLING:
                return (fault.broker,)
            case _:
                return ()

    def _troubled(self) -> list[int]:
        now = self._world.loop.time()
        return [
            broker_id
            for broker_id, machine in self._machines.items()
            if not machine.is_serving or self._troubled_until.get(broker_id, 0.0) > now
        ]

    # Processes and machines

    def _crash(self, fault: PlannedFault) -> None:
        machine = self._machines[fault.broker]
        self._down(machine, fault.seconds, machine.crash)

    def _crash_controller(self, fault: PlannedFault) -> None:
        machine = self._machines[self._observer.controller or fault.broker]
        self._down(machine, fault.seconds, machine.crash)

    def _crash_all(self, fault: PlannedFault) -> None:
        for machine in self._machines.values():
            self._down(machine, fault.seconds * (0.2 + fault.amount), machine.crash)

    def _lose_power(self, fault: PlannedFault) -> None:
        machine = self._machines[fault.broker]
        if machine.is_closed:
            self._down(machine, fault.seconds, machine.lose_power)
        else:
            self._lose_data(machine, fault.seconds, machine.lose_power)

    def _replace_disk(self, fault: PlannedFault) -> None:
        machine = self._machines[fault.broker]
        self._lose_data(machine, fault.seconds, machine.replace_disk)

    def _unmount(self, fault: PlannedFault) -> None:
        """The broker is started without its disk, and later with it. Not within the fault model by
        itself: where it has the only complete copy, it must not start in between (DEL-3)."""
        machine = self._machines[fault.broker]
        if machine.is_unmounted or not self._observer.hide_data(machine.broker_id):
            self._world.log.note("not now: its disk is not there, or has lost something")
            return
        self.look_at_logs()
        self._down(machine, fault.seconds * fault.amount, machine.unmount)
        self._later(fault.seconds + _UNMOUNTED_SECONDS, lambda: self._mount(machine))

    def _mount(self, machine: SimulatedMachine) -> None:
        """The disk is back, unless what was written meanwhile is nowhere else."""
        if not machine.is_unmounted:
            return
        self._world.log.note(f"the disk of {machine.host} is back")
        if self._observer.show_data(machine.broker_id):
            self._down(machine, 0.0, machine.mount)
        elif self._observer.is_kept():
            self._lose_data(machine, 0.0, machine.mount)
        else:
            self._world.log.note("not now: what was written meanwhile may be the best there is")

    def _stop(self, fault: PlannedFault) -> None:
        machine = self._machines[fault.broker]
        self._down(machine, fault.seconds, machine.stop)

    def _pause(self, fault: PlannedFault) -> None:
        process = self._machines[fault.broker].process
        if process is not None:
            process.pause()
            self._later(fault.seconds, process.resume)

    def _jump(self, fault: PlannedFault) -> None:
        clock = self._machines[fault.broker].clock
        if clock is not None:
            clock.start_ms += int((fault.amount - 0.5) * _LONGEST_JUMP_MS)

    def _down(
        self, machine: SimulatedMachine, seconds: float, bring_down: Callable[[], None]
    ) -> None:
        bring_down()
        self._later(seconds, machine.start)

    def _lose_data(
        self, machine: SimulatedMachine, seconds: float, bring_down: Callable[[], None]
    ) -> None:
        if self._observer.may_lose_data(machine.broker_id, self._troubled()):
            self.look_at_logs()
            self._observer.lose_data(machine.broker_id)
            self._down(machine, seconds, bring_down)
        else:
            self._world.log.note("not now: nobody else who is well has everything")

    def _stop_to_lose_files(self, fault: PlannedFault) -> None:
        machine = self._machines[fault.broker]
        machine.stop()
        self._later(fault.seconds + _STOPPING_SECONDS, lambda: self._lose_files(machine, fault))

    def _lose_files(self, machine: SimulatedMachine, fault: PlannedFault) -> None:
        """Of one log of a broker that was stopped in good order (LOG-13, LOG-14)."""
        broker_id, note = machine.broker_id, self._world.log.note
        if machine.is_running or not machine.is_closed or machine.is_unmounted:
            note("not now: it is not stopped in good order")
        elif not self._observer.may_lose_data(broker_id, self._troubled()):
            note("not now: nobody else who is well has everything")
        else:
            self.look_at_logs()
            partitions = [
                partition
                for partition, replicas in sorted(self._observer.replicas.items())
                if broker_id in replicas
                and find_topic_id(machine.files, DATA_FOLDER, partition)
                == self._observer.find_topic_id(partition.topic)
            ]
            loss = draw_loss(machine.files, DATA_FOLDER, partitions, fault.amount)
            if loss is not None:
                note(f"{machine.host} has lost {loss}")
                self._observer.lose_log(broker_id, loss.partition, loss.rule)
                loss.happen(machine.files)
        machine.start()

    # Disks

    def _slow_disk(self, fault: PlannedFault) -> None:
        workers = self._machines[fault.broker].workers
        if workers is not None:
            workers.most_seconds = _SLOW_DISK_SECONDS

    def _fail_write(self, fault: PlannedFault) -> None:
        if self._may_fail_disk(fault.broker):
            self._machines[fault.broker].files.fail_next(
                "write",
                errno.EIO if fault.amount < 0.5 else errno.ENOSPC,
                path_matching="*/t-*.log",
                kept_bytes=int(fault.amount * 100),
            )

    def _fail_sync(self, fault: PlannedFault) -> None:
        if self._may_fail_disk(fault.broker):
            files = self._machines[fault.broker].files
            files.fail_next("sync", errno.EIO, path_matching=f"{DATA_FOLDER}/*")

    def _may_fail_disk(self, broker_id: int) -> bool:
        if self._observer.may_lose_data(broker_id, self._troubled()):
            self._observer.fail_disk(broker_id)
            return True
        self._world.log.note("not now: nobody else who is well has everything")
        return False

    # Links

    def _other(self, fault: PlannedFault) -> str:
        return self._machines[fault.other].host

    def _cut(self, fault: PlannedFault, other: str, *, one_way: bool = False) -> None:
        network, host = self._world.network, self._machines[fault.broker].host
        source, target = (host, other) if fault.amount < 0.5 else (other, host)
        network.cut(source, target, one_way=one_way)
        self._later(fault.seconds, lambda: network.heal(source, target))

    def _isolate(self, fault: PlannedFault) -> None:
        network, host = self._world.network, self._machines[fault.broker].host
        network.isolate(host)
        self._later(fault.seconds, lambda: network.rejoin(host))

    def _drop_connections(self, fault: PlannedFault) -> None:
        self._world.network.drop_connections(self._machines[fault.broker].host)

    def _slow_link(self, fault: PlannedFault) -> None:
        one, other = self._machines[fault.broker].host, self._machines[fault.other].host
        seconds = 0.01 + 0.3 * fault.amount
        self._world.network.set_delay(one, other, seconds, jitter_seconds=0.2)
        self._slow[one, other] = None
        self._later(fault.seconds, self._mend_links)

    def _mend_links(self) -> None:
        for one, other in self._slow:
            seconds = self._delays.get((one, other)) or self._delays[other, one]
            self._world.network.set_delay(one, other, seconds, jitter_seconds=JITTER_SECONDS)
        self._slow.clear()

    # Coordination

    def _drop_coordination(self, fault: PlannedFault) -> None:
        self._world.service.drop(self._machines[fault.broker].host)

    def _expire(self, fault: PlannedFault) -> None:
        """The session ends before its time, and its client is told at once.

        Not while it could not be told: then only the time-out, which the lease knows, ends it.
        """
        machine, service = self._machines[fault.broker], self._world.service
        is_held = machine.process is None or machine.process.is_paused
        is_cut = self._world.network.is_cut(service.host, machine.host)
        if is_held or is_cut or not service.can_tell(machine.host):
            self._world.log.note("not now: it cannot be told")
        else:
            service.expire_sessions_of(machine.host)

    def _coordination_outage(self, fault: PlannedFault) -> None:
        self._world.network.isolate(self._world.service.host)
        self._later(fault.seconds, lambda: self._end_outage(forgive=fault.amount < 0.5))

    def _end_outage(self, *, forgive: bool) -> None:
        if forgive:
            self._world.service.forgive()
        self._world.network.rejoin(self._world.service.host)

    def _elect_coordination(self, fault: PlannedFault) -> None:
        service = self._world.service
        service.begin_election(fault.amount)
        self._later(fault.seconds, service.end_election)

    def _cut_off_coordination(self, fault: PlannedFault) -> None:
        """Mostly it notices after a while, and sends its clients to the others."""
        service = self._world.service
        if service.server_count == 1:
            self._world.log.note("not now: there is no other server")
            return
        number = fault.broker % service.server_count
        service.cut_off(number)
        self._later(fault.seconds * 1.5 * fault.amount, lambda: service.close_connections(number))
        self._later(fault.seconds, lambda: service.rejoin(number))

    def _kill_supervisor(self, fault: PlannedFault) -> None:
        supervisor = self._world.supervisor
        if supervisor is not None:
            supervisor.kill()
            self._later(fault.seconds * fault.amount, supervisor.start)

    def _pause_supervisor(self, fault: PlannedFault) -> None:
        supervisor = self._world.supervisor
        if supervisor is not None:
            supervisor.process.pause()
            self._later(fault.seconds, supervisor.process.resume)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._world.clock.call_later(seconds, action)

    def end_all(self) -> None:
        """Repair everything; brokers whose disk failed are started again, as their owner would."""
        self._world.log.note("healing begins")
        self._world.network.heal_all()
        self._world.service.heal()
        self._mend_links()
        failed = self._observer.mend_disks()
        for machine in self._machines.values():
            machine.files.clear_faults()
            if machine.workers is not None:
                machine.workers.most_seconds = 0.002
            if machine.process is not None:
                machine.process.resume()
            if machine.broker_id in failed:
                machine.crash()
            self._mount(machine)
            self._later(0.5, machine.start)

    def look_at_logs(self) -> None:
        """Compare what is on all disks with what was seen there before."""
        for partition, replicas in self._observer.replicas.items():
            topic_id = self._observer.find_topic_id(partition.topic)
            for replica in replicas:
                machine = self._machines[replica]
                if find_topic_id(machine.files, DATA_FOLDER, partition) in (None, topic_id):
                    log = read_log(machine.files, DATA_FOLDER, partition)
                    comparable = self._comparable(partition, log)
                    self._history.see_log(partition, machine.host, comparable)


@dataclass(frozen=True, slots=True)
class FileLoss:
    """A sealed segment is gone or cut short (LOG-13), or the folder is gone (LOG-14)."""

    partition: TopicPartition
    path: Path
    kept_bytes: int | None = None  # of a segment that is cut short; None: it is gone

    @property
    def rule(self) -> str:
        return "LOG-13" if self.path.suffix == LOG_SUFFIX else "LOG-14"

    def __str__(self) -> str:
        return str(self.path) if self.kept_bytes is None else f"the end of {self.path}"

    def happen(self, files: MemoryFiles) -> None:
        """Durably: what is not there does not come back with a power loss."""
        if self.path.suffix != LOG_SUFFIX:
            files.remove_folder(self.path)
        elif self.kept_bytes is None:
            files.remove(self.path)
        else:
            files.replace(self.path, files.read(self.path)[: self.kept_bytes])
        files.sync_folder(self.path.parent)


def draw_loss(
    files: MemoryFiles, data: Path, partitions: Sequence[TopicPartition], amount: float
) -> FileLoss | None:
    """One of all losses that are possible, by a number from 0 to 1; None where nothing has records.

    As often a segment as a folder, where there are sealed ones.
    """
    of_segments, of_folders = [], []
    for partition in partitions:
        folder = data / str(partition)
        names = [name for name in files.peek_folder(folder) if name.endswith(LOG_SUFFIX)]
        sizes = {name: len(files.peek(folder / name) or b"") for name in names}
        if any(sizes.values()):
            of_folders.append(FileLoss(partition, folder))
        for name in sorted(names)[:-1]:
            if sizes[name]:
                of_segments.append(FileLoss(partition, folder / name))
                of_segments.append(FileLoss(partition, folder / name, sizes[name] // 2))
    losses = of_folders if not of_segments or amount < 0.5 else of_segments
    return losses[int(amount * 1000) % len(losses)] if losses else None


# A power loss of all machines at once, and what may be gone after it. A shell over a simulation.
#
# Nobody that was in sync is spared, so what was acknowledged and flushed by nobody is lost. But
# what the disks kept is not: of all logs of those who were in sync or eligible, the best one, by
# the epoch of its last record and its end, leads when the cluster is back, without anybody's help
# (ELR-4). The history forgets what was promised behind the end of that log, and nothing else.
#
# A machine that is back before the sessions of the others have ended sees them leave one by one, as
# if each had failed alone. Whoever leaves while enough stay is not waited for, as KIP-966 has it;
# then only what every disk kept is promised.
#
# Clients end in the middle of what they do, as if they were on the same machines, and others come
# when the power is back: an idempotent producer whose last records are gone cannot go on.


POWER_LOSS_SHARE: Final = 0.1
"""Of the seeds."""
_GOES_AGAIN_SHARE: Final = 0.5
_BACK_EARLY_SHARE: Final = 0.3
_LONGEST_SECONDS: Final = 3.0
"""From the first machine that is back to the last one, and from there to the end of it."""


class PoweredCluster(Protocol):
    """What it is about (`SimulatedCluster` is one)."""

    world: World
    machines: dict[int, SimulatedMachine]
    observer: ClusterObserver
    history: ClusterHistory
    workload: Workload

    async def sleep(self, seconds: float) -> None: ...
    async def heal(self) -> None: ...


async def lose_all_power(cluster: PoweredCluster, random: Random) -> None:
    """All machines are off at once, and come back one after the other; until all is whole.

    Now and then the first one is away again when the last one comes, and has to be waited for.
    """
    is_back_early = random.random() < _BACK_EARLY_SHARE
    switch_off(cluster, one_by_one=is_back_early)
    first, *others = random.sample(list(cluster.machines.values()), len(cluster.machines))
    await cluster.sleep(random.uniform(0.1, 1.0))
    goes_again = not is_back_early and random.random() < _GOES_AGAIN_SHARE
    if not is_back_early:
        await _wait_for(cluster, lambda: not cluster.observer.registered)
    first.start()
    if goes_again:
        await _wait_for(cluster, lambda: first.broker_id in cluster.observer.registered)
        await cluster.sleep(random.uniform(0.0, 0.2))
        first.crash()
    for machine in others:
        await cluster.sleep(random.uniform(0.0, _LONGEST_SECONDS / len(others)))
        machine.start()
    expected = {machine.broker_id for machine in others}
    await _wait_for(cluster, lambda: expected <= cluster.observer.registered)
    await cluster.sleep(random.uniform(0.0, _LONGEST_SECONDS))
    await cluster.heal()
    cluster.workload.hire_clients()


async def _wait_for(cluster: PoweredCluster, condition: Callable[[], bool]) -> None:
    """But not for ever: brokers may be cut off from the coordination service."""
    for _ in range(50):
        if condition():
            return
        await cluster.sleep(0.1)


def switch_off(cluster: PoweredCluster, *, one_by_one: bool = False) -> None:
    """All at once; `one_by_one` is how those who are back early will see the others leave."""
    cluster.world.log.note("fault: power loss of all")
    cluster.workload.dismiss_clients()
    cluster.history.power_losses += 1
    observer = cluster.observer
    for broker_id, machine in cluster.machines.items():
        if not machine.is_closed:
            observer.lose_data(broker_id)
        cluster.world.service.drop(machine.host)  # nothing arrives later that was on its way
        machine.lose_power()
    for partition in sorted(observer.states):
        ends = log_ends(cluster.machines, observer.last_known(partition), partition)
        _, end_offset = (min if one_by_one else max)(ends, default=(-1, 0))
        cluster.world.log.note(f"{partition}: the disks kept it up to {end_offset}")
        cluster.history.forgive_after(partition, end_offset)


def log_ends(
    machines: Mapping[int, SimulatedMachine], replicas: tuple[int, ...], partition: TopicPartition
) -> list[tuple[int, int]]:
    """The last epoch and the end of the log of each."""
    return [_log_end(read_log(machines[each].files, DATA_FOLDER, partition)) for each in replicas]


def _log_end(batches: list[StoredBatch]) -> tuple[int, int]:
    """The last epoch and the end, as far as there is no gap: the rest is cut off at the start."""
    epoch, end_offset = -1, 0
    for number, batch in enumerate(batches):
        if number and batch.base_offset != end_offset:
            break
        epoch, end_offset = batch.leader_epoch, batch.end_offset
    return epoch, end_offset


# What people do to the coordination store by mistake, past the brokers.
#
# A topic's nodes vanish and are put back, or all nodes do; a broker's registration vanishes; a
# state, the settings or the assignment of a topic are overwritten with nonsense and repaired; all
# sessions end at once. The promises hold throughout: what was acknowledged is kept by the brokers
# and served again (DEL-1). For stories without faults that destroy data: a state that is put back
# is the one of before, and a replica that lost its log in between can say so only afterwards.
#
# A topic of transactions and share groups is missing or unreadable for so long that brokers which
# wait for it have given up, if there is anything that gives up (`ABSENCES`).


_NONSENSE: Final = b"{ not JSON"
_SHORT_SECONDS: Final = (0.05, 2.5)
_LONG_SECONDS: Final = (11.0, 17.0)
"""Transaction markers wait 10 s before they ask whether a missing topic was deleted."""


async def topic_vanishes(operator: Operator) -> None:
    await _remove(operator, znodes.topic_path(operator.cluster.partitions[0].topic))


async def everything_vanishes(operator: Operator) -> None:
    """Under living sessions; registrations and the controller's node are not put back."""
    service = operator.cluster.world.service
    if znodes.TOPICS in service.tree.paths_below(ROOT):
        await _remove(operator, *(f"/{name}" for name in service.tree.children(ROOT)))


async def topic_is_missing(operator: Operator) -> None:
    await vanish(operator, _choose_topic(operator), seconds=_LONG_SECONDS)


async def vanish(operator: Operator, topic: str, *, seconds: tuple[float, float]) -> None:
    await _remove(operator, znodes.topic_path(topic), seconds=seconds)


def _choose_topic(operator: Operator) -> str:
    """A topic of producers, transactions or share groups; it may not be there now. A topic that is
    deleted and made again is not among them: its former life is not put back."""
    names = {operator.cluster.partitions[0].topic, SINKS[0].topic, JOBS.topic}
    known = {each.topic for each in operator.cluster.observer.replicas} & names
    return operator.random.choice(sorted(known or names))


async def _remove(
    operator: Operator, *roots: str, seconds: tuple[float, float] = _SHORT_SECONDS
) -> None:
    """Nodes with all below them, to put them back in one transaction."""
    service = operator.cluster.world.service
    paths = sorted({each for root in roots for each in (root, *service.tree.paths_below(root))})
    nodes = {each: service.find(each) for each in paths}
    if None in nodes.values() or any(n and n.data == _NONSENSE for n in nodes.values()):
        return  # another one is at it
    removal = [DeleteTree(path=root) for root in roots]
    operator.note(f"{roots} vanish")
    service.write(removal)
    await operator.sleep(operator.random.uniform(*seconds))
    lasting = {each: node for each, node in nodes.items() if node and not node.ephemeral_owner}
    operator.note(f"{roots} are put back")
    service.write((*removal, *(Create(path=each, data=n.data) for each, n in lasting.items())))


async def registration_vanishes(operator: Operator) -> None:
    service = operator.cluster.world.service
    path = znodes.broker_path(BrokerId(operator.random.choice(operator.cluster.broker_ids)))
    if service.find(path) is not None:
        operator.note(f"{path} vanishes")
        service.write((DeleteTree(path=path),))


async def state_is_damaged(operator: Operator) -> None:
    partition = operator.random.choice(operator.cluster.partitions)
    await _damage(operator, znodes.partition_state_path(*partition))
    _have_topic_read(operator, partition.topic)


async def settings_are_damaged(operator: Operator) -> None:
    partition = operator.random.choice(operator.cluster.partitions)
    await _damage(operator, znodes.topic_config_path(partition.topic))


async def topic_is_unreadable(operator: Operator) -> None:
    topic = _choose_topic(operator)
    await _damage(operator, znodes.topic_path(topic), seconds=_LONG_SECONDS)
    _have_topic_read(operator, topic)


def _have_topic_read(operator: Operator, topic: str) -> None:
    """Brokers read the nodes of a topic when they hear of a change."""
    told = znodes.encode_isr_change([(topic, znodes.WHOLE_TOPIC)])
    change = Create(path=znodes.ISR_CHANGE_PREFIX, data=told, sequential=True)
    operator.cluster.world.service.write((change,))


async def all_sessions_end(operator: Operator) -> None:
    """Before their time, and each client is told at once. A client that could not be told keeps its
    session: only the time-out, which the lease knows, ends it."""
    world = operator.cluster.world
    for machine in operator.cluster.machines.values():
        is_held = machine.process is None or machine.process.is_paused
        is_cut = world.network.is_cut(world.service.host, machine.host)
        if not (is_held or is_cut) and world.service.can_tell(machine.host):
            operator.note(f"the session of {machine.host} ends")
            world.service.expire_sessions_of(machine.host)


async def _damage(
    operator: Operator, path: str, *, seconds: tuple[float, float] = _SHORT_SECONDS
) -> None:
    service = operator.cluster.world.service
    node = service.find(path)
    if node is None or node.data == _NONSENSE:
        return
    operator.note(f"{path} is damaged")
    service.write((SetData(path=path, data=_NONSENSE),))
    await operator.sleep(operator.random.uniform(*seconds))
    now = service.find(path)
    if now is not None and now.data == _NONSENSE:
        operator.note(f"{path} is repaired")
        repair: TreeOperation = SetData(path=path, data=node.data)
        service.write((repair,))


ACCIDENTS: Final = OperationFamily(
    name="accidents",
    share=1.0,
    fewest=1,
    most=3,
    kinds={
        "a topic vanishes": (3, topic_vanishes),
        "a registration vanishes": (1, registration_vanishes),
        "a state is damaged": (2, state_is_damaged),
        "settings are damaged": (1, settings_are_damaged),
    },
)
REMOVALS: Final = OperationFamily(
    name="removals",
    share=1.0,
    fewest=1,
    most=3,
    kinds={
        "everything vanishes": (2, everything_vanishes),
        "a registration vanishes": (1, registration_vanishes),
    },
)
"""For stories in which no broker is started: it refuses a store that is empty."""

ABSENCES: Final = OperationFamily(
    name="absences",
    share=1.0,
    fewest=1,
    most=3,
    kinds={
        "a topic is missing for long": (4, topic_is_missing),
        "a topic is unreadable for long": (1, topic_is_unreadable),
        "all sessions end": (3, all_sessions_end),
        "a state is damaged": (1, state_is_damaged),
    },
)
"""For stories with transactions and share groups."""
