"""Names that no topic may have, and names that collide, wherever a topic can come from."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from moldau.errors import ErrorCode
from moldau.model import MAX_TOPIC_NAME_LENGTH

from .cluster_stage import Cluster, Machine, play

INVALID = ErrorCode.invalid_topic_exception
ILLEGAL = (
    "",
    ".",
    "..",
    "a b",
    "a/b",
    "../b",
    "ä",
    "x" * (MAX_TOPIC_NAME_LENGTH + 1),
    "a\x00b",
    "a\nb",
)
LONGEST = "x" * MAX_TOPIC_NAME_LENGTH


async def create(cluster: Cluster, machine: Machine, *names: str) -> list[ErrorCode]:
    rows = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for name in names
    ]
    answer = await cluster.ask(machine, 19, 7, topics=rows, timeout=1000, validate_only=False)
    return [row.error_code for row in answer.topics]


async def ask_metadata(cluster: Cluster, machine: Machine, *names: str) -> list[ErrorCode]:
    rows = [{"topic_id": None, "name": name} for name in names]
    answer = await cluster.ask(
        machine,
        3,
        12,
        topics=rows,
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    return [row.error_code for row in answer.topics]


async def produce(cluster: Cluster, machine: Machine, *names: str) -> list[ErrorCode]:
    rows = [{"name": name, "partition_data": [{"index": 0, "records": b"x"}]} for name in names]
    answer = await cluster.ask(
        machine, 0, 8, transactional_id=None, acks=-1, timeout=1000, topic_data=rows
    )
    return [row.partition_responses[0].error_code for row in answer.responses]


def names_of(machines: Sequence[Machine]) -> list[set[str]]:
    return [set(machine.image.topics) for machine in machines]


@pytest.mark.parametrize("asked", [1, 2])  # the controller, and another one
def test_no_topic_gets_a_name_that_is_illegal(asked: int) -> None:
    async def story(cluster: Cluster) -> None:
        machines = await cluster.start(1, 2)
        if asked == 1:
            assert await create(cluster, machines[0], *ILLEGAL) == [INVALID] * len(ILLEGAL)
        machine = cluster.machines[asked]
        assert await ask_metadata(cluster, machine, *ILLEGAL) == [INVALID] * len(ILLEGAL)
        for name in ILLEGAL:
            (code,) = await produce(cluster, machine, name)
            assert code in (INVALID, ErrorCode.unknown_topic_or_partition), name
        assert names_of(machines) == [set(), set()]

    play(story)


@pytest.mark.parametrize("asked", [1, 2])
def test_a_name_that_collides_with_another_one_is_refused(asked: int) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = machines = await cluster.start(1, 2)
        assert await create(cluster, one, "a.b", LONGEST) == [ErrorCode.none] * 2
        assert await create(cluster, one, "a_b") == [INVALID]
        machine = cluster.machines[asked]
        codes = await ask_metadata(cluster, machine, "a_b", "a.b", LONGEST)
        assert codes == [INVALID, ErrorCode.none, ErrorCode.none]
        assert await produce(cluster, machine, "a_b") == [ErrorCode.unknown_topic_or_partition]
        assert names_of(machines) == [{"a.b", LONGEST}] * 2
        assert two.broker is not None

    play(story)


def test_of_two_names_that_collide_in_one_request_one_is_made() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = machines = await cluster.start(1, 2)
        codes = await create(cluster, one, "c.d", "c_d", "e")
        assert sorted(code.value for code in codes) == [0, 0, INVALID.value]
        await ask_metadata(cluster, two, "f.g", "f_g")
        await cluster.until(lambda: any("f" in name for name in names_of(machines)[0]))
        made = names_of(machines)[0]
        assert len(made & {"c.d", "c_d"}) == 1
        assert len(made & {"f.g", "f_g"}) == 1

    play(story)
