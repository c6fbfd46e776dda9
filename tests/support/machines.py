"""Brokers on machines of their own, which can lose their power: what was not flushed is forgotten.

Each broker is a real process; its files are journaled (`moldau.testing.journaled_broker`), and its
boot id is another one after each power loss. A `Network` of `cluster_processes`.
"""

from __future__ import annotations

import random
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from moldau.testing.journaled_broker import PowerSwitch
from support.cluster_processes import ClusterProcesses


class Machines:
    def __init__(self, folder: Path, sync_seconds: Mapping[int, float] | None = None) -> None:
        self._folder = folder
        self._sync_seconds = sync_seconds or {}  # which their disks take, by number
        self._switches: dict[int, PowerSwitch] = {}

    def reach(self, zookeeper: str) -> str:
        return zookeeper

    def place(self, number: int) -> Mapping[str, object]:
        """For `BrokerProcess`."""
        machine = self._folder / f"machine-{number}"
        data_folder = machine / "data"
        switch = self._switches[number] = PowerSwitch(data_folder, beside=machine / "power")
        boot_id = self._boot_id(number)
        self._boot(number)
        program = (sys.executable, "-m", "moldau.testing.journaled_broker")
        options = ("--journal", str(switch.journal), "--boot-id", str(boot_id))
        options += ("--sync-seconds", str(self._sync_seconds.get(number, 0.0)))
        return {"data_folder": data_folder, "program": (*program, *options)}

    def _boot_id(self, number: int) -> Path:
        return self._folder / f"machine-{number}" / "boot_id"

    def _boot(self, number: int) -> None:
        self._boot_id(number).write_text(str(uuid.uuid4()))

    def lose_power(
        self, cluster: ClusterProcesses, *numbers: int, chance: random.Random | None = None
    ) -> None:
        """These machines, or all, in the same moment; then they have power again.

        What was not flushed is gone; with a source of chance some of it is there, possibly torn.
        """
        cluster.kill(*numbers)
        for number in numbers or cluster.brokers:
            self._switches[number].lose_power(chance)
            self._boot(number)
