"""What explanations say, from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from moldau.client.admin.values import (
    ActiveProducer,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupState,
    TransactionDescription,
)
from moldau.client.rules.cluster_metadata import Address, Broker
from moldau.model import TopicPartition
from moldau.ops.formatting import show_duration
from moldau.ops.rules.explanations import GroupFacts, TopicFacts, explain_group, explain_topic
from moldau.ops.rules.group_lag import GroupView, group_partitions
from moldau.ops.rules.partition_explanations import (
    FoundRecord,
    PartitionFacts,
    RecordFacts,
    explain_partition,
    explain_record,
)

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
HERE = RecordFacts(
    topic="t",
    partition=0,
    offset=50,
    log_start=10,
    last_stable=90,
    high_watermark=100,
    log_end=110,
    now_ms=NOW_MS,
    configs={"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS), "segment.ms": "60000"},
    record=FoundRecord(50, NOW_MS - DAY_MS, 3, 5),
)
COMPACTED = replace(HERE, configs={"cleanup.policy": "compact"}, searched_to=100)


@pytest.mark.parametrize(
    ("facts", "verdict", "word"),
    [
        (HERE, "here", "stays for 6 days at least"),
        (replace(HERE, now_ms=NOW_MS + 20 * DAY_MS), "here", "over since 14 days"),
        (replace(HERE, offset=110), "never written", "gets offset 110"),
        (replace(HERE, offset=200), "never written", "90 before this one"),
        (replace(HERE, offset=105), "not committed", "high watermark is 100"),
        (replace(HERE, offset=-1), "impossible", "begin with 0"),
        (replace(HERE, offset=5, record=None), "deleted", "by retention (retention.ms="),
        (
            replace(COMPACTED, offset=5, record=None),
            "deleted",
            "compact alone",
        ),
        (
            replace(
                HERE,
                offset=5,
                record=None,
                deletions=[
                    {"first_offset": 0, "end_offset": 4, "message": "another"},
                    {"first_offset": 4, "end_offset": 10, "message": "DeleteRecords asked for it"},
                ],
            ),
            "deleted",
            "the broker says: DeleteRecords asked for it",
        ),
        (replace(HERE, record=None, is_control=True), "transaction marker", "no consumer gets"),
        (
            replace(COMPACTED, record=None, next_offset=57),
            "compacted",
            "the next one has offset 57",
        ),
        (replace(HERE, is_transactional=True, is_aborted=True), "aborted", "was aborted"),
        (replace(HERE, offset=95, is_transactional=True), "undecided", "from offset 90 on"),
        (replace(HERE, offset=95), "held back", "back at 90"),
        (COMPACTED, "here", "the latest record of its key"),
        (replace(COMPACTED, later_with_key=60), "here", "offset 60 has the same key"),
        (replace(COMPACTED, searched_to=70), "here", "up to offset 70"),
        (
            replace(COMPACTED, record=FoundRecord(50, NOW_MS, 3, None)),
            "here",
            "it is a tombstone",
        ),
    ],
)
def test_what_became_of_a_record(facts: RecordFacts, verdict: str, word: str) -> None:
    told = explain_record(facts)
    assert told.verdict == verdict
    assert word in "\n".join(told.lines)


LED = PartitionFacts(
    topic="t",
    partition=0,
    now_ms=NOW_MS,
    leader=1,
    replicas=(1, 2, 3),
    in_sync=(1, 2, 3),
    living=(1, 2, 3),
    log_start=0,
    last_stable=100,
    high_watermark=100,
    log_ends={1: 100, 2: 100, 3: 100},
    configs={"cleanup.policy": "delete", "retention.ms": str(DAY_MS), "segment.ms": "1000"},
    first_timestamp_ms=NOW_MS,
)
OPEN = ActiveProducer(
    producer_id=7,
    producer_epoch=0,
    last_sequence=0,
    last_timestamp_ms=0,
    coordinator_epoch=None,
    transaction_start_offset=40,
)


@pytest.mark.parametrize(
    ("facts", "verdict", "word"),
    [
        (LED, "nothing is held back", "everything is committed"),
        (
            replace(LED, leader=-1, living=(3,)),
            "held back: no leader",
            "nobody leads it",
        ),
        (
            replace(LED, high_watermark=80, last_stable=80, log_ends={1: 100, 2: 80, 3: 100}),
            "held back: high watermark",
            "broker 2 is in sync and has only what is before offset 80",
        ),
        (
            replace(LED, high_watermark=80, last_stable=80, log_ends={1: 100, 3: 100}),
            "held back: high watermark",
            "brokers [2] are in sync and do not answer",
        ),
        (
            replace(LED, in_sync=(1, 3), log_ends={1: 100, 2: 60, 3: 100}),
            "nothing is held back",
            "broker 2 is not in sync: it is 40 records behind",
        ),
        (
            replace(LED, in_sync=(1,), living=(1, 3), configs={"min.insync.replicas": "2"}),
            "nothing is held back",
            "acks=all is refused",
        ),
        (
            replace(LED, last_stable=40, producers=(OPEN,)),
            "held back: last stable offset",
            "no coordinator knows of it",
        ),
        (
            replace(
                LED,
                last_stable=40,
                producers=(OPEN,),
                transactions={
                    7: TransactionDescription(
                        transactional_id="x",
                        coordinator_id=1,
                        state="Ongoing",
                        producer_id=7,
                        producer_epoch=0,
                        timeout_ms=60_000,
                        started_ms=NOW_MS - 30_000,
                        partitions=frozenset(),
                    )
                },
            ),
            "held back: last stable offset",
            "transactional id x, Ongoing: aborted in 30 seconds",
        ),
        (
            replace(
                LED,
                first_timestamp_ms=NOW_MS - 3 * DAY_MS,
                max_timestamp_ms=NOW_MS + 5 * DAY_MS,
            ),
            "nothing is held back",
            "5 days ahead",
        ),
        (
            replace(LED, configs={"cleanup.policy": "compact"}, last_stable=40),
            "held back: last stable offset",
            "nothing from offset 40 on is compacted",
        ),
    ],
)
def test_what_holds_a_partition_back(facts: PartitionFacts, verdict: str, word: str) -> None:
    told = explain_partition(facts)
    assert told.verdict == verdict
    assert word in "\n".join(told.lines)


def entry(name: str, value: str, source: ConfigSource = ConfigSource.DEFAULT) -> ConfigEntry:
    synonym = ConfigSynonym(name=f"log.{name}", value="9", source=ConfigSource.STATIC_BROKER)
    is_own = source is ConfigSource.DYNAMIC_TOPIC
    return ConfigEntry(name=name, value=value, source=source, synonyms=(synonym,) if is_own else ())


def test_options_are_told_with_where_they_come_from_and_what_they_do_together() -> None:
    facts = TopicFacts(
        topic="t",
        entries=[
            entry("retention.ms", "3600000", ConfigSource.DYNAMIC_TOPIC),
            entry("segment.ms", str(7 * DAY_MS)),
            entry("cleanup.policy", "delete"),
            entry("min.insync.replicas", "2"),
            entry("message.timestamp.type", "CreateTime"),
        ],
        partitions=4,
        replicas=3,
        brokers=3,
        retention_check_ms=300_000,
    )
    text = "\n".join(explain_topic(facts).lines)
    assert "retention.ms=3600000  (set on the topic; without it 9, the broker's file" in text
    assert "segment.ms (7 days) is longer than retention.ms (1 hour)" in text
    assert "writing goes on while 1 of 3 are away" in text
    assert "ages are by the producers' clocks" in text


T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
GROUP = GroupDescription(
    group_id="g",
    state=GroupState.STABLE,
    protocol_type="consumer",
    protocol="range",
    coordinator=Broker(id=1, address=Address("h", 1), rack=None),
    members=(GroupMember(member_id="m-1", client_id="c", host="/h", assignment=(T0,)),),
)


def view(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> GroupView:
    positions = {one: GroupOffset(offset=offset) for one, offset in committed.items()}
    return GroupView(description=GROUP, partitions=group_partitions(GROUP.members, positions, ends))


LOOK = view({T0: 5, T1: 5}, {T0: 10, T1: 10})


def test_a_group_is_told_with_its_rebalances_and_what_its_lag_comes_from() -> None:
    facts = GroupFacts(
        group=GROUP,
        first=LOOK,
        second=view({T0: 6, T1: 5}, {T0: 20, T1: 10}),
        seconds=3.0,
        held_back={T1: 5},
        history=[{"at": "2026-01-01 00:00:00", "message": "epoch 3: member m-1 joins"}],
    )
    text = "\n".join(explain_group(facts).lines)
    assert "c (m-1) at /h holds t-0" in text
    assert "19 records, 10 before 3 s; meanwhile 10 came and 1 were committed" in text
    assert "more comes than it reads" in text
    assert "no member holds t-1" in text
    assert "an open transaction holds readers with read_committed back at 5" in text
    assert "2026-01-01 00:00:00  epoch 3: member m-1 joins" in text


def test_a_history_that_cannot_be_read_is_said_so() -> None:
    facts = GroupFacts(group=GROUP, first=LOOK, second=LOOK, seconds=3.0)
    assert "--metrics" in "\n".join(explain_group(facts).lines)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 second"),
        (90_000, "1.5 minutes"),
        (DAY_MS, "1 day"),
        (20 * DAY_MS, "20 days"),
    ],
)
def test_durations_are_said_as_people_do(milliseconds: int, text: str) -> None:
    assert show_duration(milliseconds) == text


def test_what_members_of_a_share_group_hold_is_told_or_why_not() -> None:
    shared = replace(GROUP, type="share")
    facts = GroupFacts(group=shared, first=LOOK, second=LOOK, seconds=3.0)
    assert "leaders tell them on their metrics port" in "\n".join(explain_group(facts).lines)
    foreign = replace(facts, is_foreign=True)
    assert "only brokers of Moldau tell them" in "\n".join(explain_group(foreign).lines)
    none = replace(facts, deliveries=())
    assert "nothing is in flight" in "\n".join(explain_group(none).lines)
    strange = replace(facts, deliveries=({"topic": "t"}, {"partition": "x", "members": 3}))
    assert "t-None: 0 in flight" in "\n".join(explain_group(strange).lines)


def test_kafka_is_not_asked_to_start_with_an_option_that_it_does_not_have() -> None:
    facts = GroupFacts(group=GROUP, first=LOOK, second=LOOK, seconds=3.0, is_foreign=True)
    text = "\n".join(explain_group(facts).lines)
    assert "--metrics" not in text
    assert "only brokers of Moldau remember them" in text
