"""The processes of a cluster on this machine: ZooKeeper and brokers. Blocks.

Every process has its folder with its data, its log and its pid file, so that `status` and `stop`
find what `start` has left running.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from moldau.cli.cluster.plan import ClusterPlan
from moldau.coordination.zookeeper_server import (
    HOST,
    NodePorts,
    ZookeeperEnsemble,
    all_ports,
    require_free_ports,
)
from moldau.errors import StartupError
from moldau.processes import BackgroundProcess, wait_until

_LISTENING = "listening on "
_START_SECONDS = 60.0
_STOP_SECONDS = 60.0
"""A broker hands its partitions over first; one that has not done it by then is killed."""


class LocalBroker:
    """One broker of the cluster, running or not."""

    def __init__(self, broker_id: int, port: int, folder: Path) -> None:
        self.id = broker_id
        self.port = port
        self.folder = folder
        self._data_folder = folder / "data"
        self._log_start = 0  # where the output of the run that this process started begins
        self.process = BackgroundProcess(
            pid_file=folder / "broker.pid",
            log_file=folder / "broker.log",
            mark=str(self._data_folder),
        )

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def launch(self, zookeeper: str, settings: Sequence[str]) -> None:
        log = self.process.log_file
        self._log_start = log.stat().st_size if log.exists() else 0
        command = [sys.executable, "-m", "moldau", "start", "--zookeeper", zookeeper]
        command += ["--broker-id", str(self.id), "--listen", self.address]
        command += ["--data-dir", str(self._data_folder)]
        for setting in settings:
            command += ["--set", setting]
        self.process.launch(command)

    def wait_until_serving(self) -> None:
        """It says so after it has registered."""
        wait_until(lambda: self._has_said_so() or not self.process.is_running, _START_SECONDS)
        if not self._has_said_so():
            verdict = "did not start in time" if self.process.is_running else "ended as it started"
            raise StartupError(
                f"broker {self.id} {verdict}; {self.process.log_file} says:\n"
                f"{self.process.last_lines()}"
            )

    def _has_said_so(self) -> bool:
        with self.process.log_file.open("rb") as log:
            log.seek(self._log_start)
            return any(line.startswith(_LISTENING.encode()) for line in log)


class LocalCluster:
    """All processes of one folder."""

    def __init__(self, folder: Path, plan: ClusterPlan) -> None:
        self.folder = folder.resolve()
        self.plan = plan
        self.brokers = tuple(
            LocalBroker(number, plan.broker_port(number), self.folder / f"broker-{number}")
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
    def running_brokers(self) -> list[LocalBroker]:
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
        remedy = "choose other ports with --base-port, or end what runs there"
        require_free_ports([broker.port for broker in missing], remedy)
        self.plan.save(self.folder)  # before the first process: `stop` has to find it
        try:
            if len(nodes) < self.plan.zookeeper_nodes:
                say(f"starting ZooKeeper ({self.plan.zookeeper_nodes})")
                self._start_zookeeper(remedy, had=len(nodes))
            if missing:
                noun = "broker" if len(missing) == 1 else "brokers"
                say(f"starting {noun} {', '.join(str(broker.id) for broker in missing)}")
            for broker in missing:
                broker.launch(self.zookeeper.connect, settings)
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

    def _start_zookeeper(self, remedy: str, *, had: int) -> None:
        if not had:
            first = self.plan.zookeeper_port
            numbers = range(self.plan.zookeeper_nodes)
            ports = [NodePorts.beginning_at(first + number) for number in numbers]
            require_free_ports(all_ports(ports), remedy)
            self.zookeeper = ZookeeperEnsemble.make(self._zookeeper_folder, ports)
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
