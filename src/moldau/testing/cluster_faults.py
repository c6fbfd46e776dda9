"""Makes planned faults happen to a simulated cluster, and ends them. A shell over its machines.

Faults stay within the fault model (`docs/replication.md`): of the replicas in sync or eligible, one
keeps its data. A fault that would go further is left out. Where one in sync is enough to commit,
nobody is eligible: there, one that is well is not troubled either while it is the only one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence

from moldau.model import TopicPartition
from moldau.testing.cluster_history import ClusterHistory, StoredBatch
from moldau.testing.cluster_observer import ClusterObserver
from moldau.testing.fault_plan import FaultKind, PlannedFault
from moldau.testing.lost_files import draw_loss
from moldau.testing.replica_logs import find_topic_id, read_log
from moldau.testing.simulated_machine import DATA_FOLDER, SimulatedMachine, World

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
            FaultKind.CUT: self._cut,
            FaultKind.CUT_ONE_WAY: self._cut_one_way,
            FaultKind.ISOLATE: self._isolate,
            FaultKind.CUT_COORDINATION: self._cut_coordination,
            FaultKind.CUT_COORDINATION_ONE_WAY: self._cut_coordination_one_way,
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

    def _cut(self, fault: PlannedFault) -> None:
        self._cut_from(fault, self._machines[fault.other].host, one_way=False)

    def _cut_one_way(self, fault: PlannedFault) -> None:
        self._cut_from(fault, self._machines[fault.other].host, one_way=True)

    def _cut_coordination(self, fault: PlannedFault) -> None:
        self._cut_from(fault, self._world.service.host, one_way=False)

    def _cut_coordination_one_way(self, fault: PlannedFault) -> None:
        self._cut_from(fault, self._world.service.host, one_way=True)

    def _cut_from(self, fault: PlannedFault, other: str, *, one_way: bool) -> None:
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
