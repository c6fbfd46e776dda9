"""Consumer groups with other people's clients: subscribe, share, commit, go on, leave."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from support import confluent_client
from support.broker_process import broker_process
from support.command_line import Cli
from support.group_members import MEMBERS, Member
from support.rows import numbered_rows
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS, eventually

BROKER_SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
}
PARTITIONS = 4
ALL = frozenset(range(PARTITIONS))


@pytest.fixture(params=MEMBERS, ids=str)
def client_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def shared_topic(topics: Topics) -> str:
    return topics.create(PARTITIONS)


def fill(bootstrap: str, topic: str, per_partition: int = 25) -> set[bytes]:
    """Put records into every partition; their values, all different."""
    values: set[bytes] = set()
    for partition in range(PARTITIONS):
        rows = [
            row._replace(value=b"%s of %d" % (row.value, partition))
            for row in numbered_rows(per_partition)
        ]
        confluent_client.produce(bootstrap, topic, rows, partition=partition)
        values |= {row.value for row in rows if row.value is not None}
    return values


def member(name: str, bootstrap: str, topic: str, group: str, **options: object) -> Member:
    return Member(partial(MEMBERS[name], bootstrap, topic, group, **options))


def committed(bootstrap: str, topic: str, group: str) -> dict[int, int]:
    """What a group has committed, as another client sees it."""
    with confluent_client.consumer(bootstrap, group_id=group) as consumer:
        found = consumer.committed(
            [TopicPartition(topic, number) for number in range(PARTITIONS)], PATIENCE_SECONDS
        )
    return {one.partition: one.offset for one in found}


def test_a_group_reads_everything_and_its_commits_are_seen(
    client_name: str, bootstrap: str, shared_topic: str
) -> None:
    values, group = fill(bootstrap, shared_topic), fresh_name("group")

    with member(client_name, bootstrap, shared_topic, group) as reader:
        reader.wait_for_values(values)
        assert reader.assigned == ALL

    assert len(reader.seen) == len(values), "a record came twice"
    assert committed(bootstrap, shared_topic, group) == dict.fromkeys(range(PARTITIONS), 25)


def test_a_group_goes_on_where_it_was_after_the_broker_has_restarted(
    client_name: str, tmp_path: Path
) -> None:
    with broker_process(tmp_path, settings=BROKER_SETTINGS) as broker:
        broker.start()
        topic = Topics(broker.bootstrap).create(PARTITIONS)
        former = fill(broker.bootstrap, topic)
        with member(client_name, broker.bootstrap, topic, "readers") as reader:
            reader.wait_for_values(former)
        broker.stop()
        broker.start()
        new = fill(broker.bootstrap, topic) | {b"more"}
        confluent_client.produce(
            broker.bootstrap, topic, [numbered_rows(1)[0]._replace(value=b"more")]
        )

        with member(client_name, broker.bootstrap, topic, "readers") as reader:
            reader.wait_for_values(new)

        assert len(reader.seen) == PARTITIONS * 25 + 1
        assert {one.offset for one in reader.seen} == set(range(25, 51))


def test_members_stay_in_their_group_while_the_broker_is_killed_and_comes_back(
    client_name: str, tmp_path: Path
) -> None:
    with broker_process(tmp_path, settings=BROKER_SETTINGS) as broker:
        broker.start()
        topic = Topics(broker.bootstrap).create(PARTITIONS)
        former = fill(broker.bootstrap, topic)
        with member(client_name, broker.bootstrap, topic, "readers") as reader:
            reader.wait_for_values(former)
            broker.kill()
            broker.start()
            confluent_client.produce(
                broker.bootstrap, topic, [numbered_rows(1)[0]._replace(value=b"more")]
            )
            reader.wait_for_values({b"more"})
        assert committed(broker.bootstrap, topic, "readers")[0] == 26


def test_two_members_share_and_the_one_that_stays_gets_all(
    client_name: str, bootstrap: str, shared_topic: str
) -> None:
    group = fresh_name("group")
    with member(client_name, bootstrap, shared_topic, group) as first:
        first.wait_for_assignment(lambda assigned: assigned == ALL)
        with member(client_name, bootstrap, shared_topic, group) as second:
            second.wait_for_assignment(lambda assigned: len(assigned) == PARTITIONS // 2)
            first.wait_for_assignment(lambda assigned: assigned == ALL - second.assigned)
            values = fill(bootstrap, shared_topic)
            eventually(
                lambda: {one.value for one in (*first.seen, *second.seen)} == values,
                "all records at one of the two",
            )
        first.wait_for_assignment(lambda assigned: assigned == ALL)
        confluent_client.produce(
            bootstrap, shared_topic, [numbered_rows(1)[0]._replace(value=b"more")], partition=3
        )
        first.wait_for_values({b"more"})


def test_members_of_all_clients_share_one_topic(bootstrap: str, shared_topic: str) -> None:
    """They agree on `range`, which all of them speak."""
    group = fresh_name("group")
    members = [
        member("confluent-kafka", bootstrap, shared_topic, group),
        member("aiokafka", bootstrap, shared_topic, group),
        member("kafka-python", bootstrap, shared_topic, group),
    ]
    with members[0], members[1], members[2]:
        eventually(
            lambda: (
                sorted(number for one in members for number in one.assigned) == sorted(ALL)
                and all(one.assigned for one in members)
            ),
            lambda: f"one owner for each partition: {[one.assigned for one in members]}",
        )
        values = fill(bootstrap, shared_topic)
        eventually(
            lambda: {row.value for one in members for row in one.seen} >= values,
            "all records at one of the three",
        )


def test_a_group_changes_to_the_consumer_protocol_and_back_while_its_members_read(
    client_name: str, bootstrap: str, shared_topic: str
) -> None:
    """KIP-848: somebody updates a fleet one process after the other, and thinks better of it."""
    group = fresh_name("group")
    newer = "confluent-kafka, consumer protocol"
    with member(client_name, bootstrap, shared_topic, group) as old:
        old.wait_for_assignment(lambda assigned: assigned == ALL)
        with member(newer, bootstrap, shared_topic, group) as new:
            new.wait_for_assignment(lambda assigned: len(assigned) == PARTITIONS // 2)
            old.wait_for_assignment(lambda assigned: assigned == ALL - new.assigned)
            values = fill(bootstrap, shared_topic)
            eventually(
                lambda: {one.value for one in (*old.seen, *new.seen)} >= values,
                "all records at one of the two",
            )
        old.wait_for_assignment(lambda assigned: assigned == ALL)
        confluent_client.produce(
            bootstrap, shared_topic, [numbered_rows(1)[0]._replace(value=b"more")], partition=3
        )
        old.wait_for_values({b"more"})


def test_cooperative_members_keep_what_they_have(bootstrap: str, shared_topic: str) -> None:
    group = fresh_name("group")
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    with member("confluent-kafka", bootstrap, shared_topic, group, **options) as first:
        first.wait_for_assignment(lambda assigned: assigned == ALL)
        with member("confluent-kafka", bootstrap, shared_topic, group, **options) as second:
            second.wait_for_assignment(lambda assigned: len(assigned) == PARTITIONS // 2)
            first.wait_for_assignment(lambda assigned: assigned == ALL - second.assigned)
        first.wait_for_assignment(lambda assigned: assigned == ALL)


@pytest.mark.parametrize("name", ["confluent-kafka", "confluent-kafka, consumer protocol"])
def test_a_static_member_comes_back_without_a_rebalance(
    name: str, bootstrap: str, shared_topic: str
) -> None:
    group = fresh_name("group")
    options = {"group_instance_id": "one"}
    with member(name, bootstrap, shared_topic, group) as other:
        with member(name, bootstrap, shared_topic, group, **options) as static:
            static.wait_for_assignment(lambda assigned: len(assigned) == PARTITIONS // 2)
            other.wait_for_assignment(lambda assigned: assigned == ALL - static.assigned)
            kept = static.assigned
        with member(name, bootstrap, shared_topic, group, **options) as static:
            static.wait_for_assignment(lambda assigned: assigned == kept)
            assert other.assigned == ALL - kept


def test_positions_are_committed_and_read_with_their_metadata(
    bootstrap: str, shared_topic: str
) -> None:
    group = fresh_name("group")
    with confluent_client.consumer(bootstrap, group_id=group) as consumer:
        wanted = TopicPartition(shared_topic, 1, 7, metadata="wäre 7 ❄")
        consumer.commit(offsets=[wanted], asynchronous=False)
        (found,) = consumer.committed([TopicPartition(shared_topic, 1)], PATIENCE_SECONDS)
        assert (found.offset, found.metadata) == (7, "wäre 7 ❄")


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return confluent_client.admin_client(bootstrap)


def states_of(admin: AdminClient) -> dict[str, str]:
    listed = admin.list_consumer_groups(request_timeout=PATIENCE_SECONDS).result()
    return {one.group_id: one.state.name for one in listed.valid}


def test_tools_list_describe_alter_and_delete_groups(
    admin: AdminClient, bootstrap: str, shared_topic: str
) -> None:
    values, group = fill(bootstrap, shared_topic), fresh_name("group")
    with member("confluent-kafka", bootstrap, shared_topic, group, client_id="reader") as reader:
        reader.wait_for_values(values)
        assert states_of(admin)[group] == "STABLE"
        described = admin.describe_consumer_groups([group])[group].result(PATIENCE_SECONDS)
        (one,) = described.members
        assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
        assert (one.client_id, one.host) == ("reader", "/127.0.0.1")
        assert {row.partition for row in one.assignment.topic_partitions} == ALL
        with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups([group])[group].result(PATIENCE_SECONDS)
    assert states_of(admin)[group] == "EMPTY"

    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(shared_topic, 2, 3)])
    admin.alter_consumer_group_offsets([moved])[group].result(PATIENCE_SECONDS)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    offsets = found[group].result(PATIENCE_SECONDS).topic_partitions
    assert {row.partition: row.offset for row in offsets} == {0: 25, 1: 25, 2: 3, 3: 25}

    admin.delete_consumer_groups([group])[group].result(PATIENCE_SECONDS)
    assert group not in states_of(admin)
    assert set(committed(bootstrap, shared_topic, group).values()) == {-1001}


def test_our_own_tools_show_a_consumer_group(
    bootstrap: str, shared_topic: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    cli = Cli(bootstrap, capsysbinary)
    values, group = fill(bootstrap, shared_topic), fresh_name("group")
    newer = "confluent-kafka, consumer protocol"
    with member(newer, bootstrap, shared_topic, group, client_id="reader") as reader:
        reader.wait_for_values(values)
        listed = cli.json("groups", "list")
        assert {
            "group": group,
            "state": "Stable",
            "type": "consumer",
            "protocol_type": "consumer",
        } in listed
        (described,) = cli.json("groups", "describe", group, "--members")
        (one,) = described["members"]
        assert (described["type"], described["protocol"]) == ("consumer", "uniform")
        assert (one["client_id"], one["epoch"]) == ("reader", described["epoch"])
        assert {row["partition"] for row in one["assignment"]} == ALL
        assert one["target"] == one["assignment"]
        assert "consumer, epoch" in cli("groups", "describe", group)


def test_positions_in_a_deleted_topic_are_forgotten(
    bootstrap: str, topics: Topics, admin: AdminClient
) -> None:
    topic, kept, group = topics.create(), topics.create(), fresh_name("group")
    with confluent_client.consumer(bootstrap, group_id=group) as consumer:
        positions = [TopicPartition(topic, 0, 5), TopicPartition(kept, 0, 6)]
        consumer.commit(offsets=positions, asynchronous=False)
    topics.delete(topic)

    def names() -> set[str]:
        found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return {one.topic for one in found[group].result(PATIENCE_SECONDS).topic_partitions}

    eventually(lambda: names() == {kept}, "only the position in the other topic")


def test_nobody_but_the_broker_writes_to_the_offsets_topic(
    bootstrap: str, shared_topic: str
) -> None:
    group = fresh_name("group")
    with confluent_client.consumer(bootstrap, group_id=group) as consumer:
        consumer.commit(offsets=[TopicPartition(shared_topic, 0, 1)], asynchronous=False)
    assert "__consumer_offsets" in Topics(bootstrap).names()

    with pytest.raises(Exception, match="TOPIC_EXCEPTION"):
        confluent_client.produce(bootstrap, "__consumer_offsets", numbered_rows(1))
