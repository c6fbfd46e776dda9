"""Tells, through the log, what a client waits for: brokers that do not answer, partitions that are
refused, and when that is over.

Clients try again for minutes, as they should; whoever waits hears of it within two seconds, be it
in a program or at a terminal. A shell around `rules.outages`, on the client's loop.
"""

from __future__ import annotations

import logging

from moldau.client.rules.addresses import Address
from moldau.client.rules.outages import Outages
from moldau.errors import (
    BrokerUnreachableError,
    KafkaError,
    LeaderNotAvailableError,
    StorageError,
)
from moldau.model import TopicPartition

_log = logging.getLogger("moldau.client.outages")

QUIET_SECONDS = 1.5
"""A broker that takes longer than this to answer, beyond what it was asked to wait, is told of."""

NO_LEADER = LeaderNotAvailableError("no broker leads it at the moment")

_NO_STORAGE = (
    "the broker cannot use the disk of this partition (KAFKA_STORAGE_ERROR): it may be full; the "
    "broker's log says more"
)


class BrokerOutages:
    """Which brokers do not answer; shared by all connections of one client."""

    def __init__(self) -> None:
        self._outages: Outages[Address] = Outages()

    def on_unreachable(self, address: Address, error: BrokerUnreachableError, now: float) -> None:
        if self._outages.on_failure(address, now):
            _log.warning("%s; trying again", error)

    def on_quiet(self, address: Address, now: float, quiet_seconds: float) -> None:
        """A request, or the wish to connect, has had no answer for so long."""
        if self._outages.on_failure(address, now, lasted_seconds=quiet_seconds):
            _log.warning("%s has not answered for %.0f seconds; waiting", address, quiet_seconds)

    def on_answer(self, address: Address, now: float) -> None:
        lasted_seconds = self._outages.on_success(address, now)
        if lasted_seconds is not None:
            _log.warning("%s answers again, after %.0f seconds", address, lasted_seconds)


class PartitionOutages:
    """Which partitions are refused by brokers that do answer."""

    def __init__(self) -> None:
        self._outages: Outages[TopicPartition] = Outages()

    def __bool__(self) -> bool:
        """Whether there are any: success need not be told otherwise."""
        return bool(self._outages)

    def on_refusal(self, partition: TopicPartition, error: KafkaError, now: float) -> None:
        """What was asked for will be tried again."""
        is_storage = isinstance(error, StorageError)
        if self._outages.on_failure(partition, now, is_grave=is_storage):
            words = _NO_STORAGE if is_storage else str(error).removeprefix(f"{partition}: ")
            _log.warning("%s: %s; trying again", partition, words)

    def on_success(self, partition: TopicPartition, now: float) -> None:
        lasted_seconds = self._outages.on_success(partition, now)
        if lasted_seconds is not None:
            _log.warning("%s is served again, after %.0f seconds", partition, lasted_seconds)
