"""Faults on request and from a seed."""

from __future__ import annotations

from moldau.simulation.fault_plan import FaultTable, SeededStreams


def test_a_seed_gives_the_same_numbers_every_time() -> None:
    first, second = SeededStreams(7).stream("disk"), SeededStreams(7).stream("disk")
    assert [first.random() for _ in range(5)] == [second.random() for _ in range(5)]


def test_the_numbers_of_a_seed_never_change() -> None:
    """They are part of every recorded failure: a seed must mean the same run next year."""
    stream = SeededStreams(1).stream("network")
    assert [int(stream.random() * 1_000) for _ in range(5)] == [175, 498, 896, 297, 941]


def test_streams_do_not_depend_on_each_other() -> None:
    alone = SeededStreams(7).stream("disk").random()
    streams = SeededStreams(7)
    for _ in range(100):
        streams.stream("network").random()
    assert streams.stream("disk").random() == alone
    assert streams.stream("network").random() != alone


def test_a_stream_goes_on_where_it_was() -> None:
    streams = SeededStreams(7)
    assert streams.stream("disk") is streams.stream("disk")


def test_another_seed_gives_other_numbers() -> None:
    assert SeededStreams(1).stream("a").random() != SeededStreams(2).stream("a").random()


def test_an_empty_table_lets_everything_pass() -> None:
    assert FaultTable[str]().find("write", "/data/a") is None


def test_a_fault_happens_once_unless_more_is_said() -> None:
    table: FaultTable[str] = FaultTable()
    fault = table.add("write", "broken")
    assert [table.find("write", "a") for _ in range(3)] == ["broken", None, None]
    assert (fault.times_met, fault.is_over) == (1, True)


def test_a_fault_happens_as_often_as_was_said() -> None:
    table: FaultTable[str] = FaultTable()
    table.add("write", "broken", count=2)
    table.add("read", "always", count=None)
    assert [table.find("write", "a") for _ in range(3)] == ["broken", "broken", None]
    assert [table.find("read", "a") for _ in range(3)] == ["always"] * 3


def test_a_fault_happens_to_its_operation_and_to_matching_subjects_only() -> None:
    table: FaultTable[str] = FaultTable()
    table.add("write", "broken", matching="*.log", count=None)
    assert table.find("read", "/data/0.log") is None
    assert table.find("write", "/data/0.index") is None
    assert table.find("write", "/data/0.log") == "broken"


def test_any_operation_can_be_meant() -> None:
    table: FaultTable[str] = FaultTable()
    table.add("*", "broken", count=2)
    assert [table.find(operation, "a") for operation in ("read", "write", "sync")] == [
        "broken",
        "broken",
        None,
    ]


def test_a_fault_may_let_some_pass_first() -> None:
    table: FaultTable[str] = FaultTable()
    table.add("write", "broken", skip=2, matching="*.log")
    assert table.find("write", "x.index") is None  # does not count
    assert [table.find("write", "x.log") for _ in range(4)] == [None, None, "broken", None]


def test_the_first_matching_fault_wins_and_the_next_one_follows() -> None:
    table: FaultTable[str] = FaultTable()
    table.add("write", "first")
    table.add("write", "second")
    assert [table.find("write", "a") for _ in range(3)] == ["first", "second", None]


def test_a_chance_is_drawn_from_the_given_source() -> None:
    def strikes(seed: int) -> list[bool]:
        table: FaultTable[str] = FaultTable(SeededStreams(seed).stream("faults"))
        table.add("write", "broken", chance=0.3, count=None)
        return [table.find("write", "a") is not None for _ in range(1_000)]

    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)
    assert 200 < sum(strikes(1)) < 400


def test_a_cancelled_fault_does_not_happen() -> None:
    table: FaultTable[str] = FaultTable()
    table.add("write", "broken", count=None).cancel()
    assert table.find("write", "a") is None


def test_all_faults_can_be_taken_back() -> None:
    table: FaultTable[str] = FaultTable()
    fault = table.add("write", "broken", count=None)
    table.clear()
    assert table.find("write", "a") is None
    assert fault.is_over
