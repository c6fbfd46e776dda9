"""The wall clock of a broker's process is set forward and back, by weeks, while clients work.

The process is a real one. Before it runs Moldau it lets its wall clock follow a file, as a machine
does whose clock is corrected. Its monotonic clocks are left alone.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import moldau
from moldau.client.admin.values import GroupDescription
from support.broker_process import BrokerProcess, broker_process
from support.waiting import PATIENCE_SECONDS, eventually

DAY_SECONDS = 86_400
_SECONDS_AHEAD = struct.Struct("<q")
_JUMPING = """
import mmap, runpy, struct, sys, time
with open(sys.argv.pop(1), "rb") as file:
    ahead = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
real = time.time_ns
time.time_ns = lambda: real() + struct.unpack_from("<q", ahead)[0] * 1_000_000_000
time.time = lambda: time.time_ns() / 1e9
runpy.run_module("moldau", run_name="__main__", alter_sys=True)
"""
CHECKS = {
    "log.message.timestamp.after.max.ms": str(2**63 - 1),  # clients have their own clock
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "50",
    "offsets.retention.check.interval.ms": "50",
    "producer.id.expiration.check.interval.ms": "50",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
}


class WallClock:
    """Of one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set_ahead(0)

    def set_ahead(self, days: int) -> None:
        """In place: the process has mapped the file."""
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.write(_SECONDS_AHEAD.pack(days * DAY_SECONDS))


@pytest.fixture
def clock(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path / "ahead")


@pytest.fixture
def broker(folder: Path, clock: WallClock) -> Iterator[BrokerProcess]:
    program = (sys.executable, "-P", "-c", _JUMPING, str(clock.path))
    with broker_process(folder / "broker", settings=CHECKS, program=program) as process:
        yield process.start()


JUMPS = (40, -40, 400, -400, 0)


def test_a_group_and_a_producer_go_on_whatever_the_wall_clock_says(
    broker: BrokerProcess, clock: WallClock
) -> None:
    with (
        moldau.Admin(broker.bootstrap) as admin,
        moldau.Producer(broker.bootstrap) as producer,
        moldau.Consumer(
            broker.bootstrap, group="g", topics=["t"], commit="manual", auto_offset_reset="earliest"
        ) as consumer,
    ):
        sent: list[bytes] = []
        read: list[bytes | None] = []
        members: set[str] = set()
        for days in (0, *JUMPS):
            clock.set_ahead(days)
            for _ in range(20):
                sent.append(b"%d" % len(sent))
                producer.send("t", value=sent[-1], partition=0).result(PATIENCE_SECONDS)
            while len(read) < len(sent):
                read += [record.value for record in consumer.poll(1.0)]
            consumer.commit()
            group = admin.describe_groups(["g"])["g"]
            assert isinstance(group, GroupDescription)
            members |= {member.member_id for member in group.members}
        assert read == sent
        assert len(members) == 1, "it was never taken for dead"
    clock.set_ahead(-40)
    broker.kill()
    clock.set_ahead(40)
    broker.start()
    with moldau.Consumer(
        broker.bootstrap, group="h", topics=["t"], auto_offset_reset="earliest"
    ) as consumer:
        again: list[bytes | None] = []
        while len(again) < len(sent):
            again += [record.value for record in consumer.poll(1.0)]
    assert again == sent


def test_a_transaction_ends_as_its_producer_was_told_when_the_clock_was_set_back_meanwhile(
    broker: BrokerProcess, clock: WallClock
) -> None:
    with moldau.Producer(broker.bootstrap, transactional_id="id") as producer:
        for days in (0, -40, -400):
            with producer.transaction():
                producer.send("t", value=b"%d" % days, partition=0).result(PATIENCE_SECONDS)
                clock.set_ahead(days)
        producer.begin_transaction()
        producer.send("t", value=b"left open", partition=0).result(PATIENCE_SECONDS)
        clock.set_ahead(40)  # longer than any transaction may take

        def is_aborted() -> bool:
            with moldau.Admin(broker.bootstrap) as admin:
                return admin.list_transactions()["id"].state == "CompleteAbort"

        eventually(is_aborted, "the transaction has timed out")
        with pytest.raises(moldau.errors.KafkaError):
            producer.commit_transaction()
        producer.close()
    with moldau.Consumer(
        broker.bootstrap,
        group="g",
        topics=["t"],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        read: list[bytes | None] = []
        while len(read) < 3:
            read += [record.value for record in consumer.poll(1.0)]
    assert read == [b"0", b"-40", b"-400"]
