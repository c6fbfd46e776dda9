"""Logs of a simulated cluster that move between the two log directories of their machines.

For stories: a cluster whose brokers have a second directory (`OPTIONS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.testing.replica_logs import SECOND_FOLDER
from moldau.testing.simulated_machine import DATA_FOLDER, SimulatedMachine

OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.dirs": f"{DATA_FOLDER},{SECOND_FOLDER}",
        "replica.alter.log.dirs.io.max.bytes.per.second": "4000",  # so that it takes a while
    }
)


def move_to_other_directory(machine: SimulatedMachine, partition: TopicPartition) -> bool:
    """Ask a broker for it, as AlterReplicaLogDirs does; False if it cannot be asked."""
    broker, process = machine.broker, machine.process
    held = None if broker is None else broker.services.partitions.find(*partition)
    if broker is None or process is None or held is None:
        return False
    log, moves = held.log, broker.services.log_store.moves
    target = DATA_FOLDER if log.directory.folder == SECOND_FOLDER else SECOND_FOLDER

    async def move() -> None:
        with suppress(KafkaError):
            await moves.begin(log, target)

    process.kept.append(process.spawn(move()))
    return True
