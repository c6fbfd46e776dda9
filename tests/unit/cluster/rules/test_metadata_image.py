from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.rules.metadata_image import (
    DELETIONS_REMEMBERED,
    NO_TOPIC_ID,
    BrokerState,
    DeletedTopic,
    Endpoint,
    MetadataImage,
    PartitionState,
    TopicState,
    find_regressed_epochs,
    newest_states,
)
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch, TopicId, TopicPartition

EMPTY = MetadataImage(cluster_id="cluster")


def topic(name: str, number: int, partitions: int = 1) -> TopicState:
    state = PartitionState(
        leader=BrokerId(1), leader_epoch=LeaderEpoch(0), isr=(BrokerId(1),), replicas=(BrokerId(1),)
    )
    return TopicState(
        name=name, topic_id=TopicId(UUID(int=number)), partitions=(state,) * partitions
    )


def broker(number: int, port: int = 9092) -> BrokerState:
    endpoint = Endpoint(listener_name="PLAINTEXT", host="localhost", port=port)
    return BrokerState(id=BrokerId(number), endpoints=(endpoint,))


def test_an_image_begins_empty_and_without_a_controller() -> None:
    assert EMPTY.controller_id == NO_BROKER
    assert not EMPTY.topics
    assert not EMPTY.brokers


def test_a_topic_is_found_by_its_name_and_by_its_id() -> None:
    clicks = topic("clicks", 1)
    image = EMPTY.with_topics([clicks])
    assert image.topics["clicks"] is clicks
    assert image.topics_by_id[UUID(int=1)] is clicks
    assert not EMPTY.topics


def test_a_topic_made_again_is_not_found_by_its_former_id() -> None:
    image = EMPTY.with_topics([topic("clicks", 1)]).with_topics([topic("clicks", 2)])
    assert set(image.topics_by_id) == {UUID(int=2)}
    assert image.topics["clicks"].topic_id == UUID(int=2)


def test_a_topic_that_went_is_found_no_more() -> None:
    image = EMPTY.with_topics([topic("clicks", 1), topic("views", 2)]).with_topics(
        [], removed=["clicks"]
    )
    assert set(image.topics) == {"views"}
    assert set(image.topics_by_id) == {UUID(int=2)}
    assert image.with_topics([], removed=["clicks"]).topics == image.topics


def test_topics_without_an_id_do_not_share_one() -> None:
    image = EMPTY.with_topics([topic("old", 0), topic("older", 0)])
    assert NO_TOPIC_ID not in image.topics_by_id
    assert len(image.topics) == 2


def test_every_change_makes_a_higher_version() -> None:
    image = EMPTY
    for changed in (
        image.with_topics([topic("clicks", 1)]),
        image.with_topics([], removed=["clicks"]),
        image.with_brokers([broker(1)]),
        image.with_controller(BrokerId(1)),
        image.with_broker_config(None, {"a": "b"}),
        image.with_broker_config(BrokerId(1), {"a": "b"}),
    ):
        assert changed.version == image.version + 1


def test_what_changes_nothing_makes_no_image() -> None:
    """A change may be read before its writer applies it: nobody is to hear of it twice."""
    image = (
        EMPTY.with_brokers([broker(1)])
        .with_controller(BrokerId(1))
        .with_broker_config(None, {"a": "b"})
        .with_group_configs({"g": {"c": "d"}})
    )
    assert image.with_brokers([broker(1)]) is image
    assert image.with_controller(BrokerId(1)) is image
    assert image.with_broker_config(None, {"a": "b"}) is image
    assert image.with_broker_config(BrokerId(7), {}) is image
    assert image.with_group_configs({"g": {"c": "d"}, "others": {}}) is image
    assert image.with_acls({}) is image
    assert image.with_quotas({}) is image
    assert image.with_group_configs({"g": {}}).group_configs == {}


def test_what_did_not_change_is_shared() -> None:
    image = EMPTY.with_topics([topic("clicks", 1)]).with_brokers([broker(1)])
    assert image.with_controller(BrokerId(1)).topics is image.topics
    assert image.with_topics([topic("views", 2)]).topics["clicks"] is image.topics["clicks"]


def test_brokers_are_those_that_were_named_last() -> None:
    image = EMPTY.with_brokers([broker(1, 1), broker(2)])
    assert image.with_brokers([broker(1, 2)]).brokers == {1: broker(1, 2)}


def test_partitions_are_found_by_number() -> None:
    image = EMPTY.with_topics([topic("clicks", 1, partitions=2)])
    assert image.find_partition("clicks", 1) is image.topics["clicks"].partitions[1]
    assert image.find_partition("clicks", 2) is None
    assert image.find_partition("clicks", -1) is None
    assert image.find_partition("views", 0) is None


def test_what_is_set_for_one_broker_and_for_all_is_kept_apart() -> None:
    image = EMPTY.with_broker_config(None, {"a": "all", "b": "all"})
    image = image.with_broker_config(BrokerId(1), {"a": "one"})
    assert image.broker_config(BrokerId(1)) == {"a": "one"}
    assert image.broker_config(BrokerId(2)) == {}
    assert image.broker_config(None) == {"a": "all", "b": "all"}
    assert image.with_broker_config(BrokerId(1), {}).broker_configs == {}


def test_an_endpoint_is_found_by_its_listener() -> None:
    assert broker(1).find_endpoint("PLAINTEXT") == broker(1).endpoints[0]
    assert broker(1).find_endpoint("SSL") is None


# Topics that are being deleted


def test_a_topic_that_is_being_deleted_is_no_topic_but_its_name_is_known() -> None:
    image = EMPTY.with_topics([topic("clicks", 1), topic("views", 2)])
    image = image.with_topics((), deleting={"clicks": TopicId(UUID(int=1))})
    assert set(image.topics) == {"views"}
    assert set(image.topics_by_id) == {UUID(int=2)}
    assert image.deleting == {"clicks": UUID(int=1)}
    assert not image.with_topics((), removed=("clicks",)).deleting
    assert not image.with_topics([topic("clicks", 3)]).deleting
    assert image.with_topics([topic("more", 4)]).deleting == image.deleting


def topic_id(number: int) -> TopicId:
    return TopicId(UUID(int=number))


def test_what_is_known_by_its_name_was_deleted_if_a_topic_of_the_name_was_deleted_since() -> None:
    image = EMPTY.with_topics((), deleted={topic_id(1): DeletedTopic("clicks", 400)})
    image = image.with_topics((), deleted={topic_id(2): DeletedTopic("clicks", 500)})
    assert image.was_deleted("clicks", None, since_ms=500)
    assert not image.was_deleted("clicks", None, since_ms=501)
    assert not image.was_deleted("clicks", None)
    assert not image.was_deleted("views", None, since_ms=0)
    assert not image.was_deleted("clicks", topic_id(3), since_ms=0)
    marked = image.with_topics((), deleting={"clicks": topic_id(3)})
    assert marked.was_deleted("clicks", None, since_ms=501)


def test_the_time_of_a_deletion_is_forgotten_with_its_record() -> None:
    first, others = {topic_id(1): DeletedTopic("clicks", 500)}, range(2, 2 + DELETIONS_REMEMBERED)
    image = EMPTY.with_topics((), deleted=first)
    image = image.with_topics((), deleted={topic_id(n): DeletedTopic("views", n) for n in others})
    assert image.find_deletion_ms("clicks", None) is None
    assert image.find_deletion_ms("clicks", topic_id(1)) is None
    assert image.find_deletion_ms("views", None) == others[-1]
    assert image.find_deletion_ms("views", topic_id(others[0])) == others[0]


# States do not go back


def versions(*numbers: int, topic_id: int = 1) -> TopicState:
    made = topic("clicks", topic_id, len(numbers))
    states = zip(made.partitions, numbers, strict=True)
    return replace(
        made, partitions=tuple(replace(state, version=number) for state, number in states)
    )


def read_versions(known: TopicState | None, read: TopicState) -> list[int]:
    return [state.version for state in newest_states(known, read).partitions]


def test_of_two_states_the_one_with_the_higher_version_counts() -> None:
    assert read_versions(versions(5, 1, 3), versions(4, 2, 3)) == [5, 2, 3]
    assert read_versions(versions(5), versions(-1, 0)) == [5, 0]
    assert read_versions(None, versions(0)) == [0]


def test_a_later_leader_epoch_counts_also_where_versions_began_anew() -> None:
    """Somebody has removed the nodes of a topic and put them back, unseen by who is cut off."""
    (state,) = versions(4).partitions
    later = replace(state, leader_epoch=LeaderEpoch(state.leader_epoch + 2), version=3)
    known, read = versions(4), replace(versions(3), partitions=(later,))
    assert newest_states(known, read).partitions == (later,)
    assert newest_states(read, known).partitions == (later,)


def at(epoch: int, version: int) -> TopicState:
    made = versions(version)
    (state,) = made.partitions
    return replace(made, partitions=(replace(state, leader_epoch=LeaderEpoch(epoch)),))


def test_a_store_was_set_back_also_where_others_have_written_to_it_since() -> None:
    """DEL-2: their elections count versions up again, and epochs that were given before."""
    key = TopicPartition("clicks", 0)
    assert find_regressed_epochs(at(10, 20), at(5, 10)) == {key: 10}
    assert find_regressed_epochs(at(10, 20), at(6, 25)) == {key: 10}
    assert find_regressed_epochs(at(10, 20), at(11, 3)) == {}
    assert (
        find_regressed_epochs(at(10, 20), at(10, 19)) == {}
    )  # and its in-sync set says nothing else
    assert find_regressed_epochs(at(10, 20), at(10, 25)) == {}


def test_states_of_another_topic_of_the_same_name_do_not_count() -> None:
    assert read_versions(versions(5), versions(0, topic_id=2)) == [0]


def moved(version: int, *replicas: int, topic_version: int) -> TopicState:
    """A topic of one partition: the version of its state, and its replicas."""
    made = versions(version)
    brokers = tuple(BrokerId(broker) for broker in replicas)
    state = replace(made.partitions[0], replicas=brokers)
    return replace(made, partitions=(state,), version=topic_version)


def newest_pair(known: TopicState, read: TopicState) -> tuple[int, tuple[int, ...], int]:
    newest = newest_states(known, read)
    (state,) = newest.partitions
    return state.version, state.replicas, newest.version


def test_a_newer_state_is_never_paired_with_older_replicas() -> None:
    """META-4: whichever of the two is read last."""
    older = moved(4, 1, 2, topic_version=2)
    newer = moved(5, 1, topic_version=3)
    assert newest_pair(older, newer) == newest_pair(newer, older) == (5, (1,), 3)


def test_replicas_that_a_tool_wrote_alone_are_taken_by_the_version_of_their_node() -> None:
    older = moved(4, 1, 2, topic_version=2)
    newer = moved(4, 2, 1, topic_version=3)
    assert newest_pair(older, newer) == newest_pair(newer, older) == (4, (2, 1), 3)


def test_a_topic_that_has_grown_does_not_shrink() -> None:
    grown = replace(versions(4, 0), version=3)
    assert read_versions(grown, replace(versions(4), version=2)) == [4, 0]
    assert read_versions(replace(versions(4), version=2), grown) == [4, 0]


@given(st.data())
def test_of_any_readings_in_any_order_the_newest_pair_stays(data: st.DataObject) -> None:
    """A partition's life: each step writes the state, some of them the replicas too."""
    life = [moved(0, 1, topic_version=0)]
    for step in data.draw(st.lists(st.sampled_from(("state", "move")), max_size=8)):
        version, topic_version = life[-1].partitions[0].version + 1, life[-1].version
        replicas = life[-1].partitions[0].replicas
        if step == "move":
            replicas, topic_version = (BrokerId(10 + version),), topic_version + 1
        life.append(moved(version, *replicas, topic_version=topic_version))
    readings = data.draw(st.lists(st.sampled_from(life), min_size=1))
    known = readings[0]
    for read in readings[1:]:
        known = newest_states(known, read)
    assert known == max(readings, key=lambda topic: topic.partitions[0].version)
