"""Counters by topic: bounded, and they only grow."""

from __future__ import annotations

from moldau.metrics.figures import OTHERS, TopicTraffics


def test_topics_beyond_the_bound_share_one_set() -> None:
    traffics = TopicTraffics(most_topics=2)
    first, second = traffics.of("a"), traffics.of("b")
    third, fourth = traffics.of("c"), traffics.of("d")
    assert len({id(one) for one in (first, second, third, fourth)}) == 3
    assert third is fourth
    third.bytes_in += 7
    assert [one.label for one in traffics] == ["a", "b", OTHERS]
    assert (traffics.label_of("a"), traffics.label_of("c")) == ("a", OTHERS)


def test_a_topic_keeps_its_counters_while_its_partitions_come_and_go() -> None:
    traffics = TopicTraffics()
    traffics.of("a").records_in += 3
    assert traffics.of("a").records_in == 3
    traffics.forget("a")
    assert traffics.of("a").records_in == 0
