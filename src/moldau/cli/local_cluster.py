"""A cluster on this machine: its plan, kept in its folder, and its processes.

The brokers run under one supervisor, or with ZooKeeper. Every process has its pid file, so that
`status` and `stop` find what `start` has left running. Blocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from moldau.broker.broker_places import OTHERS_FOLDER, PID_FILE, count_metrics_on
from moldau.cli.secure import SecureFolder
from moldau.coordination.zookeeper.server import (
    HOST,
    NodePorts,
    ServerOptions,
    ZookeeperEnsemble,
    all_ports,
    require_free_ports,
    require_server,
)
from moldau.errors import StartupError
from moldau.processes import BackgroundProcess, build_module_command, wait_until

DEFAULT_FOLDER = Path("moldau-cluster")
DEFAULT_BROKERS = 3
DEFAULT_BASE_PORT = 9092
NO_ZOOKEEPER = 0
_FIRST_NODES = 1
MAX_BROKERS = 50

_FILE_NAME = "cluster.json"
_ZOOKEEPER_OFFSET = 100  # above the ports of the brokers, of which there are at most 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """Brokers 1 to N listen from the base port on; ZooKeeper, if any, 100 ports above it."""

    brokers: int
    base_port: int
    zookeeper_nodes: int  # 0: the brokers share a store that their supervisor serves
    secure: str | None = None  # the folder of `moldau secure init`
    log_dir: str | None = None  # of what the brokers print; beside their data where it is None

    def broker_port(self, broker_id: int) -> int:
        return self.base_port + broker_id - 1

    @property
    def secure_folder(self) -> SecureFolder | None:
        return None if self.secure is None else SecureFolder(Path(self.secure))

    @property
    def zookeeper_port(self) -> int:
        return self.base_port + _ZOOKEEPER_OFFSET

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _FILE_NAME).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def find(cls, folder: Path) -> ClusterPlan | None:
        try:
            return cls(**json.loads((folder / _FILE_NAME).read_text()))
        except FileNotFoundError:
            return None
        except (TypeError, ValueError) as error:
            raise StartupError(
                f"{folder / _FILE_NAME} is not readable ({error}); remove it to begin anew"
            ) from error

    @classmethod
    def require(cls, folder: Path) -> ClusterPlan:
        plan = cls.find(folder)
        if plan is None:
            raise StartupError(
                f"there is no cluster in {folder}; start one with `moldau cluster start`, or name "
                "its folder with --data-dir"
            )
        return plan

    @classmethod
    def choose(
        cls,
        folder: Path,
        *,
        brokers: int | None,
        base_port: int | None,
        zookeeper_nodes: int | None,
        with_zookeeper: bool = False,
        secure: Path | None = None,
        log_dir: Path | None = None,
    ) -> ClusterPlan:
        """What was asked for, else what is there, else the defaults. Brokers can be added."""
        former = cls.find(folder)
        known = former or cls(
            brokers=DEFAULT_BROKERS, base_port=DEFAULT_BASE_PORT, zookeeper_nodes=NO_ZOOKEEPER
        )
        if with_zookeeper and zookeeper_nodes is None:
            zookeeper_nodes = known.zookeeper_nodes or _FIRST_NODES
        chosen = cls(
            brokers=brokers or known.brokers,
            base_port=base_port or known.base_port,
            zookeeper_nodes=zookeeper_nodes or known.zookeeper_nodes,
            secure=known.secure if secure is None else str(secure.resolve()),
            log_dir=known.log_dir if log_dir is None else str(log_dir.resolve()),
        )
        if former is None:
            return chosen
        if former.zookeeper_nodes and former.secure != chosen.secure:
            raise StartupError(
                f"{folder} holds a cluster whose ZooKeeper is "
                f"{'not secured' if former.secure is None else f'secured by {former.secure}'}; "
                "choose another folder with --data-dir"
            )
        if chosen.zookeeper_nodes != former.zookeeper_nodes or chosen.brokers < former.brokers:
            raise StartupError(
                f"{folder} holds a cluster of {former.brokers} brokers and "
                f"{former.zookeeper_nodes or 'no'} ZooKeeper nodes; brokers can be added, nothing "
                "else; choose another folder with --data-dir"
            )
        return chosen


_LISTENING = "listening on "
_START_SECONDS = 60.0
_OTHER_PORTS = "choose other ports with --base-port, or end what runs there"
_SECURED_PATH = "/moldau"
_STOP_SECONDS = 60.0
"""A broker hands its partitions over first; one that has not done it by then is killed."""


def _config(plan: ClusterPlan) -> list[str]:
    secured = plan.secure_folder
    return [] if secured is None else ["--config", str(secured.server_properties)]


class LocalBroker:
    """One broker of a cluster, running or not."""

    def __init__(self, broker_id: int, port: int, process: BackgroundProcess) -> None:
        self.id = broker_id
        self.port = port
        self.process = process

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


class ZookeeperBroker(LocalBroker):
    """One broker of a cluster with ZooKeeper: its data and its pid are in its folder."""

    def __init__(self, broker_id: int, plan: ClusterPlan, folder: Path) -> None:
        self._data_folder, logs = folder / "data", plan.log_dir
        process = BackgroundProcess(
            pid_file=folder / "broker.pid",
            log_file=Path(logs) / f"{folder.name}.log" if logs else folder / "broker.log",
            mark=str(self._data_folder),
        )
        super().__init__(broker_id, plan.broker_port(broker_id), process)
        self._wait = ListeningLine(process, f"broker {broker_id}")

    def launch(self, zookeeper: str, config: Sequence[str], settings: Sequence[str]) -> None:
        self._wait.mark_start()
        command = build_module_command("moldau", "start", "--zookeeper", zookeeper, *config)
        command += ["--broker-id", str(self.id), "--listen", self.address]
        command += ["--data-dir", str(self._data_folder)]
        for setting in settings:
            name, _, value = setting.partition("=")
            if name == "metrics.listener":
                setting = f"{name}={count_metrics_on(value, self.id - 1)}"
            command += ["--set", setting]
        self.process.launch(command)

    def wait_until_serving(self) -> None:
        """It says so after it has registered."""
        self._wait.wait_until_said()


class ListeningLine:
    """What a process says in its log when it serves."""

    def __init__(self, process: BackgroundProcess, name: str) -> None:
        self._process = process
        self._name = name
        self._log_start = 0  # where the output of the run that is waited for begins

    def mark_start(self) -> None:
        """Before the process is launched."""
        log = self._process.log_file
        self._log_start = log.stat().st_size if log.exists() else 0

    def wait_until_said(self) -> None:
        """Raises `StartupError` with the end of the log."""
        process = self._process
        wait_until(lambda: self._is_said() or not process.is_running, _START_SECONDS)
        if not self._is_said():
            verdict = "did not start in time" if process.is_running else "ended as it started"
            raise StartupError(
                f"{self._name} {verdict}; {process.log_file} says:\n{process.read_last_lines()}"
            )

    def _is_said(self) -> bool:
        with self._process.log_file.open("rb") as log:
            log.seek(self._log_start)
            return any(line.startswith(_LISTENING.encode()) for line in log)


class LocalCluster(Protocol):
    """All processes of one folder."""

    @property
    def plan(self) -> ClusterPlan: ...

    @property
    def brokers(self) -> Sequence[LocalBroker]: ...

    @property
    def zookeeper(self) -> ZookeeperEnsemble:
        """Without nodes where there is none."""
        ...

    @property
    def zookeeper_connect(self) -> str:
        """What brokers have as zookeeper.connect; nothing where there is none."""
        ...

    @property
    def bootstrap(self) -> str: ...

    def start(self, settings: Sequence[str], say: Callable[[str], None]) -> None:
        """Bring up what is not running. If something fails, what was started here is stopped."""
        ...

    def stop(self, say: Callable[[str], None]) -> int:
        """Brokers one after the other. Returns how many processes there were to stop."""
        ...


def open_cluster(folder: Path, plan: ClusterPlan) -> LocalCluster:
    """The kind that the plan says."""
    if plan.zookeeper_nodes:
        return ZookeeperCluster(folder, plan)
    return SupervisedCluster(folder, plan)


class SupervisedCluster:
    """One process looks after the brokers: `moldau start --brokers`."""

    def __init__(self, folder: Path, plan: ClusterPlan) -> None:
        self.folder = folder.resolve()
        self.plan = plan
        self.zookeeper = ZookeeperEnsemble([])
        self.zookeeper_connect = ""
        self._data_folder = self.folder / "data"
        self._supervisor = BackgroundProcess(
            pid_file=self.folder / "supervisor.pid",
            log_file=Path(plan.log_dir or self.folder) / "brokers.log",
            mark=str(self._data_folder),
        )
        self.brokers = tuple(
            LocalBroker(number, plan.broker_port(number), self._process_of(number))
            for number in range(1, plan.brokers + 1)
        )

    def _process_of(self, number: int) -> BackgroundProcess:
        if self.plan.brokers == 1:
            return self._supervisor  # a broker alone has none
        others = self._data_folder / OTHERS_FOLDER
        folder = self._data_folder if number == 1 else others / str(number)
        return BackgroundProcess(
            pid_file=folder / PID_FILE,
            log_file=self._supervisor.log_file,
            mark=f"log.dirs={folder}",
        )

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def start(self, settings: Sequence[str], say: Callable[[str], None]) -> None:
        former = ClusterPlan.find(self.folder)
        if self._supervisor.is_running:
            change = "" if former == self.plan else ", with other settings than these"
            raise StartupError(
                f"the cluster in {self.folder} is already running{change}; `moldau cluster status` "
                "shows it, `moldau cluster stop` ends it, and then it can grow"
            )
        require_free_ports([broker.port for broker in self.brokers], _OTHER_PORTS)
        self.plan.save(self.folder)  # before the first process: `stop` has to find it
        noun = "a broker" if self.plan.brokers == 1 else f"{self.plan.brokers} brokers"
        say(f"starting {noun}")
        line = ListeningLine(self._supervisor, noun)
        line.mark_start()
        command = build_module_command("moldau", "start", "--brokers", str(self.plan.brokers))
        command += _config(self.plan)
        command += ["--listen", self.brokers[0].address, "--broker-id", str(self.brokers[0].id)]
        command += ["--data-dir", str(self._data_folder)]
        for setting in settings:
            command += ["--set", setting]
        self._supervisor.launch(command)
        try:
            line.wait_until_said()
        except BaseException:
            self._supervisor.stop(_STOP_SECONDS)
            raise
        self._supervisor.detach()

    def stop(self, say: Callable[[str], None]) -> int:
        if not self._supervisor.is_running:
            return 0
        say("stopping the brokers")
        seconds = _STOP_SECONDS * (len(self.brokers) + 1)
        if not self._supervisor.stop(seconds):
            say(f"they did not end in {seconds:.0f} s and were killed")
        return 1


class ZookeeperCluster:
    """ZooKeeper, and brokers that nobody looks after, as on several machines."""

    def __init__(self, folder: Path, plan: ClusterPlan) -> None:
        self.folder = folder.resolve()
        self.plan = plan
        self.brokers = tuple(
            ZookeeperBroker(number, plan, self.folder / f"broker-{number}")
            for number in range(1, plan.brokers + 1)
        )
        self.zookeeper = ZookeeperEnsemble.find(self._zookeeper_folder)

    @property
    def _zookeeper_folder(self) -> Path:
        return self.folder / "zookeeper"

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    @property
    def zookeeper_connect(self) -> str:
        """A path that can belong to the brokers where they are secured: the root cannot."""
        return self.zookeeper.connect + ("" if self.plan.secure is None else _SECURED_PATH)

    @property
    def running_brokers(self) -> list[ZookeeperBroker]:
        return [broker for broker in self.brokers if broker.process.is_running]

    def start(self, settings: Sequence[str], say: Callable[[str], None]) -> None:
        """Bring up what is not running. If something fails, what was started here is stopped."""
        nodes = [node for node in self.zookeeper.nodes if node.is_running]
        missing = [broker for broker in self.brokers if not broker.process.is_running]
        if not missing and len(nodes) == self.plan.zookeeper_nodes:
            raise StartupError(
                f"the cluster in {self.folder} is already running at {self.bootstrap}; "
                "`moldau cluster status` shows it, `moldau cluster stop` ends it"
            )
        self._require_same_ports(is_running=bool(nodes) or len(missing) < len(self.brokers))
        require_free_ports([broker.port for broker in missing], _OTHER_PORTS)
        if len(nodes) < self.plan.zookeeper_nodes:
            require_server(speaks_tls=self.plan.secure is not None)
        self.plan.save(self.folder)  # before the first process: `stop` has to find it
        try:
            if len(nodes) < self.plan.zookeeper_nodes:
                say(f"starting ZooKeeper ({self.plan.zookeeper_nodes})")
                self._start_zookeeper(had=len(nodes))
            if missing:
                noun = "broker" if len(missing) == 1 else "brokers"
                say(f"starting {noun} {', '.join(str(broker.id) for broker in missing)}")
            for broker in missing:
                broker.launch(self.zookeeper_connect, _config(self.plan), settings)
            for broker in missing:
                broker.wait_until_serving()
        except BaseException:
            for broker in missing:
                broker.process.kill()
            if not nodes and not self.running_brokers:
                self.zookeeper.kill()
            raise
        self.detach()

    def _require_same_ports(self, *, is_running: bool) -> None:
        former = ClusterPlan.find(self.folder)
        if is_running and former is not None and former.base_port != self.plan.base_port:
            raise StartupError(
                f"a part of the cluster in {self.folder} is running, from port {former.base_port} "
                "on; leave --base-port out, or stop it first with `moldau cluster stop`"
            )

    def _start_zookeeper(self, *, had: int) -> None:
        if not had:
            first = self.plan.zookeeper_port
            numbers = range(self.plan.zookeeper_nodes)
            ports = [NodePorts.beginning_at(first + number) for number in numbers]
            require_free_ports(all_ports(ports), _OTHER_PORTS)
            secured = self.plan.secure_folder
            security = None if secured is None else secured.server_security()
            options = ServerOptions(security=security)
            self.zookeeper = ZookeeperEnsemble.make(self._zookeeper_folder, ports, options)
        self.zookeeper.start()

    def stop(self, say: Callable[[str], None]) -> int:
        """Brokers first, one after the other, since each hands its partitions to the others.

        Returns how many processes there were to stop.
        """
        count = 0
        for broker in self.running_brokers:
            count += 1
            say(f"stopping broker {broker.id}")
            if not broker.process.stop(_STOP_SECONDS):
                say(f"broker {broker.id} did not end in {_STOP_SECONDS:.0f} s and was killed")
        nodes = [node for node in self.zookeeper.nodes if node.is_running]
        if nodes:
            say("stopping ZooKeeper")
        self.zookeeper.stop()
        return count + len(nodes)

    def detach(self) -> None:
        """Let everything run on after this process."""
        for broker in self.brokers:
            broker.process.detach()
        self.zookeeper.detach()
