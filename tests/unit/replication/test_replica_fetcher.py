"""Followers copy, go back to where histories part, and write nothing that they did not check."""

import errno

from moldau.model import TopicPartition
from moldau.records.batch_header import stamp
from moldau.records.record_batch import build_batch
from moldau.replication.replica_fetcher import interrupt_after_seconds
from moldau.replication.rules.replica import SUSPICIOUS_REPEATS
from moldau.simulation.manual_clock import wait_until_idle
from moldau.wire.fetch_exchange import AnsweredPartition, AnsweredTopic, FetchAnswer
from moldau.wire.fetch_frame import FetchRequest
from replication.replica_bench import TOPIC_ID, Bench, Replica, run_story


def test_a_follower_copies_and_hears_what_is_committed():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        leader.produce(b"a", b"b")
        leader.produce(b"c")
        await bench.settle()
        assert follower.values == leader.values == [b"a", b"b", b"c"]
        assert leader.partition.high_watermark == follower.partition.high_watermark == 3
        assert follower.partition.log.latest_epoch == 0

    run_story(story)


def test_replicas_are_equal_byte_for_byte():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 3)
        bench.copy(2, 1)
        for number in range(10):
            leader.produce(b"%d" % number)
        await bench.settle()
        ours, theirs = (
            one.partition.log.read(0, 1 << 20, end_offset=10, min_one=True).slice.read()
            for one in (leader, follower)
        )
        assert ours == theirs

    run_story(story)


def test_nothing_is_written_that_is_damaged_and_the_leader_hears_of_it():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        link = bench.copy(2, 1)

        def damage(data: bytearray) -> None:
            if data:
                data[-1] ^= 1

        link.bend = damage
        leader.produce(b"a")
        await bench.settle()
        assert follower.values == []
        assert len(link.requests) >= SUSPICIOUS_REPEATS
        assert leader.observer.suspicions[0] == 0
        link.bend = lambda data: None
        await bench.settle()
        assert follower.values == [b"a"]

    run_story(story)


def test_a_length_that_is_damaged_is_no_reason_to_ask_without_a_pause():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        link = bench.copy(2, 1)

        def damage(data: bytearray) -> None:
            if data:
                data[8] = 0x7F

        link.bend = damage
        leader.produce(b"a")
        await bench.settle(10)
        assert follower.values == []
        assert len(link.requests) < 30

    run_story(story)


def test_the_log_start_follows_the_leaders():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        leader.produce(b"a")
        leader.produce(b"b")
        await bench.settle()
        leader.partition.delete_records(1)
        await bench.settle()
        assert follower.partition.log.log_start_offset == 1

    run_story(story)


def test_an_answer_that_was_overtaken_by_an_election_is_thrown_away():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        link = bench.copy(2, 1)

        def overtake(data: bytearray) -> None:
            if data:
                follower.partition.apply_state(bench.state(2, 1))

        link.bend = overtake
        leader.produce(b"a")
        await bench.settle()
        assert follower.partition.is_leader
        assert follower.values == []

    run_story(story)


def test_an_answer_of_a_former_leader_is_not_used_under_the_next_one():
    async def story(bench: Bench) -> None:
        leader, follower, _ = await bench.open(1, 2, 3)
        bench.elect(1, 0)
        link = bench.copy(2, 1)

        def overtake(data: bytearray) -> None:
            if data:
                follower.partition.apply_state(bench.state(3, 1))

        link.bend = overtake
        leader.produce(b"a")
        await bench.settle()
        assert follower.partition.is_following
        assert follower.values == []

    run_story(story)


def test_what_a_former_leader_copied_itself_is_not_taken_from_it():
    """It went back and copied while its answer was on the way, from where our histories part."""

    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        link = bench.copy(2, 1)

        def replace_by_later(data: bytearray) -> None:
            if data:
                stamp(data, 0, 1)

        link.bend = replace_by_later
        leader.produce(b"a")
        await bench.settle()
        assert follower.values == []

    run_story(story)


def test_a_fault_in_one_answer_does_not_end_the_copying():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        append = follower.partition.append_as_follower

        def stumble(records: memoryview) -> None:
            follower.partition.append_as_follower = append
            raise ValueError("a bug")

        follower.partition.append_as_follower = stumble
        leader.produce(b"a")
        await bench.settle()
        assert follower.values == [b"a"]

    run_story(story)


def test_a_leader_that_cannot_be_reached_is_tried_again_with_pauses():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        link = bench.copy(2, 1)
        link.is_cut = True
        leader.produce(b"a")
        await bench.settle(10)
        assert 5 <= len(link.requests) <= 20
        link.is_cut = False
        await bench.settle()
        assert follower.values == [b"a"]

    run_story(story)


def test_many_batches_are_appended_with_a_turn_for_others_in_between():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        for number in range(350):
            leader.produce(b"%d" % number)
        bench.copy(2, 1)
        await bench.settle()
        assert follower.values == leader.values
        assert follower.partition.high_watermark == 350

    run_story(story)


def test_an_election_between_two_pieces_of_an_answer_ends_the_copying():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        for number in range(350):
            leader.produce(b"%d" % number)
        append = follower.partition.append_as_follower

        def append_and_elect(records: memoryview) -> None:
            append(records)
            follower.partition.apply_state(bench.state(2, 1))

        follower.partition.append_as_follower = append_and_elect
        bench.copy(2, 1)
        await bench.settle()
        assert follower.partition.is_leader
        assert len(follower.values) == 100
        assert follower.partition.high_watermark == 0

    run_story(story)


def test_a_follower_tells_of_nothing_that_should_be_flushed_and_is_not():
    """REP-7: with flush.messages=1, what the leader counts on is on the follower's disk, too."""

    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        link = bench.copy(2, 1)
        leader.produce(b"a", b"b")
        leader.produce(b"c")
        told: list[tuple[int, int]] = []
        fetch = link.fetch

        async def note(request: FetchRequest) -> FetchAnswer:
            (wanted,) = request.topics[0].partitions
            told.append((wanted.fetch_offset, follower.partition.log.recovery_point))
            return await fetch(request)

        link.fetch = note
        leader.produce(b"d")
        await bench.settle()
        leader.produce(b"e")
        await bench.settle()
        assert told[-1][0] == 5
        assert all(on_disk >= offset for offset, on_disk in told), told

    run_story(story, flush_messages="1")


def test_a_follower_whose_flush_fails_tells_of_it_later():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        follower.files.fail_next("sync", errno.EMFILE, path_matching="*.log", count=3)
        leader.produce(b"a")
        await bench.settle(5.0)
        assert follower.partition.log.recovery_point == 1
        assert leader.partition.high_watermark == 1

    run_story(story, flush_messages="1")


def test_another_in_sync_set_does_not_take_back_what_is_being_asked_for():
    """On a long way no answer would ever be used while the sets change often."""

    async def story(bench: Bench) -> None:
        await bench.open(1, 2)
        bench.elect(1, 0)
        link = bench.copy(2, 1)
        await wait_until_idle()
        assert len(link.requests) == 1
        bench.follow_anew(2)
        await bench.clock.advance(0.1)
        assert len(link.requests) == 1
        bench.elect(1, 1)
        bench.follow_anew(2)
        await bench.clock.advance(0.1)
        assert [each.topics[0].partitions[0].current_leader_epoch for each in link.requests] == [
            0,
            1,
        ]

    run_story(story)


def test_another_in_sync_set_does_not_throw_away_an_answer_that_is_being_used():
    """The leader's session does not tell a second time how much is committed."""

    async def story(bench: Bench) -> None:
        _, follower = await bench.open(1, 2)
        log = await follower.store.create_log(
            TopicPartition("clicks", 1), TOPIC_ID, bench.topic_options
        )
        other = Replica(bench, 2, follower.files, follower.store, log)
        for partition in (follower.partition, other.partition):
            partition.apply_state(bench.state(1, 0))
        batch = build_batch([(1, None, b"a", ())])
        stamp(batch, 0, 0)
        other.partition.append_as_follower(memoryview(batch))
        link = bench.copy(2, 1)
        bench.follow(2, other)
        append = follower.partition.append_as_follower

        def change_meanwhile(records: memoryview) -> None:
            append(records)
            bench.follow(2, other)

        follower.partition.append_as_follower = change_meanwhile
        rows = [
            AnsweredPartition(0, 0, 0, 0, 0, (), -1, memoryview(batch)),
            AnsweredPartition(1, 0, 1, 1, 0, (), -1, memoryview(b"")),
        ]
        answers = [FetchAnswer(0, 0, 7, [AnsweredTopic(None, TOPIC_ID, rows)])]

        async def fetch(request: FetchRequest) -> FetchAnswer:
            if not answers:
                await bench.clock.sleep(10)
            return answers.pop() if answers else FetchAnswer(0, 0, 7, [])

        link.fetch = fetch
        await wait_until_idle()
        assert follower.values == [b"a"]
        assert other.partition.high_watermark == 1

    run_story(story)


def test_the_more_a_session_holds_the_longer_it_is_left_alone():
    """Starting over costs some 50 us for each partition: a tenth of the time at most."""
    assert interrupt_after_seconds(0) == interrupt_after_seconds(10) == 0.02
    assert all(held * 50e-6 <= interrupt_after_seconds(held) / 10 for held in (100, 1000, 5000))
