"""What may rightly be gone from a compacted or trimmed log, and what must be there."""

from __future__ import annotations

from moldau.model import TopicPartition
from moldau.records.record_batch import build_batch
from moldau.simulation.cleanup import CleanupHistory, from_common_start, one_by_one
from moldau.simulation.history import ClusterHistory, StoredBatch

KEYED = TopicPartition("keyed", 0)
TRIMMED = TopicPartition("trimmed", 0)


def a_batch(offset: int, *pairs: tuple[bytes, bytes | None], epoch: int = 0) -> StoredBatch:
    rows = [(0, key, value, ()) for key, value in pairs]
    content = bytes(build_batch(rows, base_offset=offset, leader_epoch=epoch))
    return StoredBatch(offset, offset + len(pairs), epoch, content)


def a_history() -> CleanupHistory:
    told = CleanupHistory(ClusterHistory())
    told.begin_keyed(KEYED)
    told.history.acknowledge(KEYED, 0, [b"1", b"2", b"3", b""])
    told.acknowledge(KEYED, 0, [(b"a", b"1"), (b"b", b"2")])
    told.acknowledge(KEYED, 2, [(b"a", b"3"), (b"b", None)])
    return told


def rules(told: CleanupHistory) -> list[str]:
    return [violation.rule for violation in told.history.violations]


def test_a_record_may_be_gone_when_a_later_one_of_its_key_is_there():
    told = a_history()
    told.check_keyed(KEYED, "one", [a_batch(2, (b"a", b"3"), (b"b", None))])
    assert rules(told) == []


def test_the_last_of_a_key_must_be_there_or_a_later_one():
    told = a_history()
    told.check_keyed(KEYED, "one", [a_batch(0, (b"a", b"1")), a_batch(3, (b"b", None))])
    assert rules(told) == ["REP-3"]
    told = a_history()
    told.check_keyed(KEYED, "one", [a_batch(2, (b"a", b"3")), a_batch(7, (b"b", b"9"))])
    assert rules(told) == []


def test_a_record_is_what_was_acknowledged():
    told = a_history()
    told.check_keyed(KEYED, "one", [a_batch(2, (b"a", b"x"), (b"b", None))])
    told.see(KEYED, 0, b"a", b"1")
    told.see(KEYED, 1, b"b", b"y")
    assert rules(told) == ["REP-3", "REP-3"]


def test_replicas_mean_the_same_whatever_was_compacted():
    whole = [a_batch(0, (b"a", b"1"), (b"b", b"2")), a_batch(2, (b"a", b"3"))]
    compacted = [a_batch(1, (b"b", b"2")), a_batch(2, (b"a", b"3"))]
    told = a_history()
    told.check_equal_tables(KEYED, {"one": whole, "other": compacted}, 3)
    assert rules(told) == []
    told.check_equal_tables(KEYED, {"one": whole, "other": compacted[1:]}, 3)
    assert rules(told) == ["REP-2"]
    assert one_by_one(whole)[1:] == one_by_one(compacted)


def test_replicas_have_the_same_record_where_both_have_one():
    one = [a_batch(0, (b"a", b"1")), a_batch(1, (b"a", b"2"))]
    other = [a_batch(0, (b"a", b"9")), a_batch(1, (b"a", b"2"))]
    told = a_history()
    told.check_equal_tables(KEYED, {"one": one, "other": other}, 2)
    assert rules(told) == ["REP-2"]


def test_a_log_starts_where_somebody_asked_or_keeps_its_bytes():
    told = a_history()
    told.begin_trimmed(TRIMMED, 700)
    told.ask_deletion(TRIMMED, 5)
    told.check_start(TRIMMED, "one", 5, 0)
    told.check_start(TRIMMED, "one", 9, 700)
    assert rules(told) == []
    told.check_start(TRIMMED, "one", 6, 699)
    assert rules(told) == ["LOG-12"]
    told.history.forgive_after(TRIMMED, 8)  # the rest went with the power
    told.check_start(TRIMMED, "one", 6, 100)
    assert rules(told) == ["LOG-12"]


def test_trimmed_replicas_are_compared_from_where_all_begin():
    log = [a_batch(number, (b"a", b"1")) for number in range(4)]
    cut = from_common_start({"one": log, "other": log[2:]})
    assert cut["one"] == cut["other"] == log[2:]


def test_what_was_forgiven_after_a_power_loss_of_all_need_not_be_there():
    told = a_history()
    told.history.forgive_after(KEYED, 2)
    told.check_keyed(KEYED, "one", [a_batch(0, (b"a", b"1"), (b"b", b"2"))])
    told.check_keyed(KEYED, "one", [a_batch(0, (b"a", b"1"))])
    assert rules(told) == ["REP-3"]
