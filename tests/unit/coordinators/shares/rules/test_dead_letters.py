"""What is written of records that came to their end, and of which."""

from __future__ import annotations

from moldau.coordinators.shares.dead_letters import write_letters
from moldau.coordinators.shares.rules.in_flight import DeadRange
from moldau.model import TopicPartition
from moldau.records.record import NewRecord, Record

CLICKS = TopicPartition("clicks", 3)
RECORDS = [Record(offset, 50, b"k", b"v", (("own", b"h"),)) for offset in range(10, 16)]


def letters(*dead: DeadRange, copies: bool = False) -> list[NewRecord]:
    return list(write_letters(CLICKS, "takers", RECORDS, dead, copies=copies, now_ms=900))


def headers(letter: NewRecord) -> dict[str, bytes | None]:
    return dict(letter.headers)


def test_there_is_one_letter_for_each_record_of_a_range() -> None:
    offsets = [
        headers(letter)["__dlq.errors.offset"]
        for letter in letters(DeadRange(11, 13, 5, False), DeadRange(15, 99, 1, True))
    ]
    assert offsets == [b"11", b"12", b"15"]


def test_a_record_in_two_ranges_has_one_letter() -> None:
    assert len(letters(DeadRange(11, 12, 5, False), DeadRange(11, 12, 1, True))) == 1


def test_a_letter_says_where_the_record_is_and_why_it_is_dead() -> None:
    rejected, worn = letters(DeadRange(11, 12, 2, True), DeadRange(12, 13, 5, False))
    assert headers(rejected) == {
        "__dlq.errors.topic": b"clicks",
        "__dlq.errors.partition": b"3",
        "__dlq.errors.offset": b"11",
        "__dlq.errors.group": b"takers",
        "__dlq.errors.delivery.count": b"2",
        "__dlq.errors.message": b"The record was rejected by a member of the group.",
    }
    message = headers(worn)["__dlq.errors.message"]
    assert message == b"The record was delivered as often as the group allows."
    assert (rejected.timestamp_ms, rejected.key, rejected.value) == (900, None, None)


def test_a_copy_has_the_record_and_its_headers_too() -> None:
    (letter,) = letters(DeadRange(11, 12, 2, True), copies=True)
    assert (letter.key, letter.value) == (b"k", b"v")
    assert letter.headers[0] == ("own", b"h")
    assert len(letter.headers) == 7
