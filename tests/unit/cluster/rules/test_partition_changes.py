"""What two images tell of elections and in-sync sets."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from moldau.broker.monitoring.composition import ClusterChanges
from moldau.cluster.rules.metadata_image import (
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicState,
    describe_isr,
    describe_leader,
    find_partition_changes,
)
from moldau.metrics.figures import BrokerFigures
from moldau.metrics.history import EventKind, History
from moldau.model import BrokerId, LeaderEpoch, TopicId

ID = TopicId(UUID(int=1))
LED = PartitionState(
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(3),
    isr=(BrokerId(1), BrokerId(2), BrokerId(3)),
    replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
    version=5,
)


def image(state: PartitionState | None, **others: object) -> MetadataImage:
    made = MetadataImage(cluster_id="c", controller_id=BrokerId(1))
    if state is not None:
        made = made.with_topics([TopicState(name="t", topic_id=ID, partitions=(state,))])
    return replace(made, **others)


def changed(**fields: object) -> PartitionState:
    return replace(LED, version=6, **fields)


@pytest.mark.parametrize(
    ("former", "state", "isr", "leader", "is_unclean"),
    [
        (LED, changed(isr=(1, 3)), "broker 2 left the in-sync set", None, False),
        (changed(isr=(1,)), LED, "brokers 2, 3 joined the in-sync set", None, False),
        (LED, changed(leader=2, leader_epoch=4), None, "broker 2 leads under epoch 4", False),
        (LED, changed(leader=-1), None, "nobody leads any more", False),
        (
            changed(leader=-1, isr=(1,)),
            changed(leader=3, isr=(3,)),
            "broker 1 left and broker 3 joined",
            "committed records may be lost",
            True,
        ),
        (
            changed(leader=-1, isr=(1,), elr=(3,)),
            changed(leader=3, isr=(3,)),
            "broker 1 left",
            "broker 3 leads",
            False,
        ),
    ],
)
def test_what_changed_is_said(
    former: PartitionState,
    state: PartitionState,
    isr: str | None,
    leader: str | None,
    is_unclean: bool,
) -> None:
    (change,) = find_partition_changes(image(former), image(state), ["t"])
    assert change.is_unclean is is_unclean
    for told, expected in ((describe_isr(change), isr), (describe_leader(change), leader)):
        assert (told is None) is (expected is None)
        assert expected is None or expected in (told or "")


def test_what_is_new_or_gone_or_the_same_is_no_change() -> None:
    for former, state in ((None, LED), (LED, None), (LED, LED), (LED, replace(LED, version=9))):
        assert not list(find_partition_changes(image(former), image(state), ["t"]))


def test_a_broker_counts_what_it_is_responsible_for_and_remembers_all() -> None:
    figures, history = BrokerFigures(), History(lambda: 0)
    changes = ClusterChanges(BrokerId(1), figures, history)
    figures.traffics.of("t").bytes_in += 1
    topics = frozenset({"t"})
    changes.on_image(image(LED), image(changed(isr=(1, 2))), topics)
    moved = changed(leader=2, leader_epoch=4)
    changes.on_image(image(LED), image(moved), topics)
    changes.on_image(image(moved), image(changed(leader=2, isr=(2,))), topics)
    elsewhere = image(changed(leader=3, isr=(3,)), controller_id=BrokerId(2))
    changes.on_image(image(LED), elsewhere, topics)
    counted = figures.isr_shrinks, figures.isr_expands, figures.elections
    assert (*counted, figures.unclean_elections) == (1, 0, 1, 0)
    assert len(history.find(EventKind.ELECTION)) == 2
    assert len(history.find(EventKind.ISR)) == 3
    assert [one.message for one in history.find(EventKind.BROKER)] == ["broker 2 is the controller"]
    gone = image(None, brokers={BrokerId(2): BrokerState(id=BrokerId(2), endpoints=())})
    changes.on_image(image(LED), gone, topics)
    assert "broker 2 has come" in [one.message for one in history.find(EventKind.BROKER)]
    assert figures.traffics.label_of("t") != "t"
