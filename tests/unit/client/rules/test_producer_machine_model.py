"""Whatever brokers and connections do, nothing is lost, doubled or out of order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from client.rules.producer_story import (
    MISHAPS,
    OTHER_PARTITION,
    PARTITION,
    Mishap,
    ProducerStory,
    refuse_for_good,
    refuse_for_now,
    take,
    take_and_complain,
)
from moldau.client.producer.rules.record_accumulator import NotDelivered
from moldau.errors import InvalidRecordError

partitions = st.sampled_from([PARTITION, PARTITION, OTHER_PARTITION])
brokers = st.sampled_from([1, 2])
actions = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 6), partitions),
    st.tuples(st.just("pump")),
    st.tuples(st.just("answer"), brokers, st.just(take)),
    st.tuples(st.just("answer"), brokers, st.sampled_from(MISHAPS)),
    st.tuples(st.just("cut"), brokers, st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("straggle"), brokers),
    st.tuples(st.just("move"), partitions),
    st.tuples(st.just("limit"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 60.0])),
)
stories = st.lists(actions, max_size=60)


def play(story: ProducerStory, steps: list[tuple[object, ...]]) -> None:
    for name, *arguments in steps:
        act(story, name, *arguments)
    story.finish()


def act(story: ProducerStory, name: object, *arguments: object) -> None:
    match name, *arguments:
        case "send", int(count), partition:
            story.send(count, partition)  # type: ignore[arg-type]
        case "pump", *_:
            story.pump()
        case "answer", int(broker_id), mishap:
            story.answer(broker_id, mishap)  # type: ignore[arg-type]
        case "cut", int(broker_id), int(arrived), int(straggling), int(unsent):
            story.cut(broker_id, arrived=arrived, straggling=straggling, unsent=unsent)
        case "straggle", int(broker_id):
            story.straggle(broker_id)
        case "move", partition:
            story.move_leader(partition)  # type: ignore[arg-type]
        case "limit", int(largest):
            for log in story.logs.values():
                log.largest_batch = largest
        case "wait", float(seconds):
            story.wait(seconds)
        case other:
            raise AssertionError(other)


@settings(deadline=None)
@given(stories, st.integers(1, 5), st.integers(1, 4))
def test_an_idempotent_producer_loses_nothing_doubles_nothing_and_keeps_the_order(
    steps: list[tuple[object, ...]], most_under_way: int, records_per_batch: int
) -> None:
    story = ProducerStory(most_under_way=most_under_way, records_per_batch=records_per_batch)
    play(story, steps)
    for partition in (PARTITION, OTHER_PARTITION):
        in_log = story.numbers(partition)
        assert in_log == sorted(set(in_log))
        assert set(story.delivered(partition)) <= set(in_log)


rounds = st.lists(
    st.tuples(
        st.lists(st.sampled_from([take, take, take_and_complain]), max_size=5),
        st.integers(0, 5),
        st.integers(0, 3),
    ),
    min_size=4,
    max_size=20,
)


@settings(deadline=None)
@given(rounds)
def test_a_stream_of_batches_survives_cuts_again_and_again(
    plan: list[tuple[list[Mishap], int, int]],
) -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(100)
    for answers, arrived, unsent in plan:
        story.wait(1.0)
        story.pump()
        for mishap in answers:
            story.answer(mishap=mishap)
        story.cut(arrived=arrived, unsent=unsent)
    story.finish()
    assert story.numbers() == list(range(100))
    assert story.delivered() == list(range(100))


@settings(deadline=None)
@given(stories)
def test_offsets_are_those_of_the_log(steps: list[tuple[object, ...]]) -> None:
    story = ProducerStory()
    play(story, steps)
    in_log = story.numbers()
    for number, outcome in enumerate(story.outcomes()):
        result, index = story.sent[PARTITION][number]
        offset = getattr(outcome, "base_offset", -1)
        if offset >= 0 and not hasattr(result.outcomes[0], "parts"):
            assert in_log[offset + index] == number


@settings(deadline=None)
@given(stories)
def test_without_idempotence_nothing_is_lost_and_first_writings_keep_the_order(
    steps: list[tuple[object, ...]],
) -> None:
    calm = [step for step in steps if step[0] != "straggle"]
    story = ProducerStory(is_idempotent=False)
    play(story, calm)
    for partition in (PARTITION, OTHER_PARTITION):
        in_log = story.numbers(partition)
        first_writings = list(dict.fromkeys(in_log))
        assert first_writings == sorted(first_writings)
        assert set(story.delivered(partition)) <= set(in_log)


@settings(deadline=None)
@given(st.lists(st.sampled_from([take, refuse_for_now, refuse_for_good]), max_size=30))
def test_only_what_was_refused_for_good_is_missing(misfortunes: list[object]) -> None:
    story = ProducerStory(records_per_batch=1)
    for mishap in misfortunes:
        story.send(2)
        story.pump()
        story.answer(1, mishap)  # type: ignore[arg-type]
        story.wait(0.2)
    story.finish()
    assert story.delivered() == story.numbers()
    refusals = [one.error for one in story.outcomes() if isinstance(one, NotDelivered)]
    assert all(isinstance(error, InvalidRecordError) for error in refusals)


@settings(deadline=None)
@given(stories)
def test_the_last_epoch_is_followed_by_a_new_producer_id(
    steps: list[tuple[object, ...]],
) -> None:
    # Brokers cannot tell a straggler of the old id from a new record: that much is lost with it.
    calm = [step for step in steps if step[0] not in ("straggle", "cut")]
    story = ProducerStory(epoch=0x7FFF)
    play(story, calm)
    in_log = story.numbers()
    assert in_log == sorted(set(in_log))
    assert set(story.delivered()) <= set(in_log)


@settings(deadline=None)
@given(stories)
def test_all_memory_is_free_at_the_end(steps: list[tuple[object, ...]]) -> None:
    story = ProducerStory()
    play(story, steps)
    assert story.machine.used_bytes == 0
    assert story.machine.is_empty
