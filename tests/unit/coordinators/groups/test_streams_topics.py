"""What a topology needs of its topics, and how many tasks follow from that."""

from __future__ import annotations

import pytest

from moldau.coordinators.groups.rules.streams_topology import (
    MOST_TASKS,
    CopartitionGroup,
    CreatableTopic,
    InvalidTopologyError,
    StreamsStatus,
    Subtopology,
    TopicInfo,
    Topology,
    configure,
    find_topology_fault,
)

COUNTING = Topology(
    0,
    (
        Subtopology("0", source_topics=("words",), repartition_sinks=("by-word",)),
        Subtopology(
            "1",
            changelog_topics=(
                TopicInfo("counts-changelog", 0, 2, (("cleanup.policy", "compact"),)),
            ),
            repartition_sources=(TopicInfo("by-word"),),
        ),
    ),
)


def joining(*counts: int, fixed: int = 0) -> Topology:
    """Source topics t0, t1, ... joined with a repartition topic."""
    names = tuple(f"t{number}" for number in range(len(counts)))
    sources = (TopicInfo("again", fixed),)
    group = CopartitionGroup(tuple(range(len(names))), (), (0,))
    return Topology(
        0,
        (
            Subtopology("0", source_topics=("words",), repartition_sinks=("again",)),
            Subtopology(
                "1",
                source_topics=names,
                repartition_sources=sources,
                copartition_groups=(group,),
            ),
        ),
    )


def test_internal_topics_get_as_many_partitions_as_what_is_read() -> None:
    configured = configure(COUNTING, {"words": 3})
    assert configured.fault is not None
    assert configured.fault.status is StreamsStatus.MISSING_INTERNAL_TOPICS
    assert configured.fault.detail == "Internal topics are missing: by-word, counts-changelog"
    assert configured.missing == (
        CreatableTopic("by-word", 3, 0),
        CreatableTopic("counts-changelog", 3, 2, (("cleanup.policy", "compact"),)),
    )
    assert configured.task_counts == {"0": 3, "1": 3}
    assert configured.stateful == {"1"}


def test_a_topology_whose_topics_are_there_is_ready() -> None:
    configured = configure(COUNTING, {"words": 3, "by-word": 3, "counts-changelog": 3})
    assert configured.is_ready
    assert configured.missing == ()


@pytest.mark.parametrize("name", ["by-word", "counts-changelog"])
def test_an_internal_topic_with_other_partitions_is_told(name: str) -> None:
    existing = {"words": 3, "by-word": 3, "counts-changelog": 3}
    configured = configure(COUNTING, {**existing, name: 5})
    assert configured.fault is not None
    assert configured.fault.status is StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS
    assert configured.task_counts == {}


def test_missing_source_topics_are_named_but_not_all_of_them() -> None:
    topology = Topology(0, (Subtopology("0", source_topics=("d", "c", "b", "a")),))
    configured = configure(topology, {})
    assert configured.fault == (
        StreamsStatus.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 1 additional topics are missing.",
    )
    assert configured.missing == ()


def test_a_chain_of_repartition_topics_is_followed() -> None:
    topology = Topology(
        0,
        (
            Subtopology("2", repartition_sources=(TopicInfo("second"),)),
            Subtopology(
                "1",
                repartition_sources=(TopicInfo("first"),),
                repartition_sinks=("second",),
            ),
            Subtopology("0", source_topics=("words",), repartition_sinks=("first",)),
        ),
    )
    assert configure(topology, {"words": 7}).task_counts == {"0": 7, "1": 7, "2": 7}


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_long_chain_is_followed_from_either_end(is_reversed: bool) -> None:
    """In one go: as many rounds as it has links would take hours, and hold all others up."""
    length = 9_000
    chain = [Subtopology("first", source_topics=("words",), repartition_sinks=("again-0",))]
    chain += (
        Subtopology(
            str(number),
            repartition_sources=(TopicInfo(f"again-{number}"),),
            repartition_sinks=(f"again-{number + 1}",) if number + 1 < length else (),
        )
        for number in range(length)
    )
    ordered = tuple(reversed(chain)) if is_reversed else tuple(chain)
    configured = configure(Topology(0, ordered), {"words": 2})
    assert set(configured.partition_counts.values()) == {2}
    assert len(configured.missing) == length


def test_writers_decide_in_their_order() -> None:
    """As in Kafka: the first that can tell how many partitions a topic gets does."""
    late = Subtopology(
        "0", repartition_sources=(TopicInfo("large"),), repartition_sinks=("shared",)
    )
    early = Subtopology("1", source_topics=("small",), repartition_sinks=("shared",))
    source = Subtopology("2", source_topics=("words",), repartition_sinks=("large",))
    reader = Subtopology("3", repartition_sources=(TopicInfo("shared"),))
    existing = {"small": 2, "words": 5}
    counts = configure(Topology(0, (late, early, source, reader)), existing).partition_counts
    assert counts == {"large": 5, "shared": 2}
    counts = configure(Topology(0, (source, late, early, reader)), existing).partition_counts
    assert counts == {"large": 5, "shared": 5}


def test_a_topology_has_so_many_tasks_at_most() -> None:
    """Not as many as a short request could ask for by reading a large topic many times."""
    readers = [Subtopology(str(number), source_topics=("words",)) for number in range(11)]
    partitions = MOST_TASKS // 10
    assert configure(Topology(0, tuple(readers[:10])), {"words": partitions}).is_ready
    with pytest.raises(InvalidTopologyError, match="tasks"):
        configure(Topology(0, tuple(readers)), {"words": partitions})
    again = Subtopology("again", repartition_sources=(TopicInfo("fixed", 2**31 - 1),))
    with pytest.raises(InvalidTopologyError, match="tasks"):
        configure(Topology(0, (again,)), {})


def test_a_repartition_topic_follows_what_it_is_joined_with() -> None:
    configured = configure(joining(4, 4), {"words": 2, "t0": 4, "t1": 4})
    assert configured.partition_counts["again"] == 4
    assert configured.task_counts == {"0": 2, "1": 4}


def test_joined_topics_need_the_same_partitions() -> None:
    configured = configure(joining(4, 5), {"words": 2, "t0": 4, "t1": 5})
    assert configured.fault is not None
    assert configured.fault.status is StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS
    assert "t0=4, t1=5" in configured.fault.detail


def test_a_repartition_topic_that_must_have_other_partitions_cannot_be_joined() -> None:
    configured = configure(joining(4, fixed=3), {"words": 2, "t0": 4})
    assert configured.fault is not None
    assert configured.fault.status is StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS
    assert "[3] of repartition topic [again]" in configured.fault.detail


def test_of_joined_repartition_topics_one_that_says_its_partitions_decides() -> None:
    topology = Topology(
        0,
        (
            Subtopology("0", source_topics=("words",), repartition_sinks=("a", "b")),
            Subtopology(
                "1",
                repartition_sources=(TopicInfo("a"), TopicInfo("b", 6)),
                copartition_groups=(CopartitionGroup((), (), (0, 1)),),
            ),
        ),
    )
    configured = configure(topology, {"words": 2})
    assert configured.partition_counts == {"a": 6, "b": 6}


@pytest.mark.parametrize("sinks", [(), ("lonely",)])
def test_a_repartition_topic_without_a_source_makes_no_sense(sinks: tuple[str, ...]) -> None:
    topology = Topology(
        0,
        (Subtopology("0", repartition_sources=(TopicInfo("lonely"),), repartition_sinks=sinks),),
    )
    with pytest.raises(InvalidTopologyError, match="cannot be told"):
        configure(topology, {})


@pytest.mark.parametrize(
    ("subtopology", "fault"),
    [
        (Subtopology("0"), "it reads no topic"),
        (
            Subtopology("0", ("t",), changelog_topics=(TopicInfo("c", 3),)),
            "must leave its number of partitions open",
        ),
        (Subtopology("0", ("t",), repartition_sources=(TopicInfo("r", -1),)), "below 0"),
        (
            Subtopology("0", ("t",), copartition_groups=(CopartitionGroup((1,)),)),
            "a source topic that is not there",
        ),
        (
            Subtopology("0", ("t",), copartition_groups=(CopartitionGroup((), (), (-1,)),)),
            "a repartition topic that is not there",
        ),
    ],
)
def test_topologies_that_make_no_sense(subtopology: Subtopology, fault: str) -> None:
    found = find_topology_fault(Topology(0, (subtopology,)))
    assert found is not None
    assert fault in found


def test_a_subtopology_stands_in_a_topology_once() -> None:
    one = Subtopology("0", ("t",))
    assert find_topology_fault(Topology(0, (one, one))) is not None
    assert find_topology_fault(COUNTING) is None
