"""What a local cluster consists of, kept in its folder so that later commands find it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from moldau.cli.secure import SecureFolder
from moldau.errors import StartupError

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
