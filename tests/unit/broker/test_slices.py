"""Large answers leave the loop to others between two slices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from broker.cluster_stage import Cluster, play
from moldau.broker.api import Slices, answered_class, encode_array, encode_element
from moldau.broker.handlers.list_groups import API
from moldau.errors import ErrorCode

DESCRIBE_CONFIGS, TOPIC = 32, 2
TOPICS = 12


def _rows(count: int, made: list[str]) -> Iterator[dict[str, object]]:
    for number in range(count):
        made.append("element")
        yield {
            "group_id": f"group-{number}",
            "protocol_type": "consumer",
            "group_state": "Stable",
            "group_type": "classic",
        }


def test_others_have_the_loop_between_slices_and_elements_are_made_when_it_is_their_turn() -> None:
    happened: list[str] = []

    async def others() -> None:
        while True:
            happened.append("others")
            await asyncio.sleep(0)

    async def story() -> None:
        beside = asyncio.ensure_future(others())
        group_class = answered_class(API, 5, "groups")
        await encode_array(group_class, _rows(7, happened), API, Slices(3))
        beside.cancel()

    asyncio.run(story())
    assert happened == [*["element"] * 3, "others", *["element"] * 3, "others", "element"]


def test_slices_are_counted_over_several_arrays_of_one_answer() -> None:
    async def story() -> int:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(others())
        slices = Slices(3)
        for _ in range(6):
            await encode_array(answered_class(API, 0, "groups"), _rows(1, []), API, slices)
        beside.cancel()
        return turns

    assert asyncio.run(story()) == 2


def test_the_elements_are_those_of_the_plain_encoder_in_every_version() -> None:
    for version in range(API.first, API.last + 1):
        group_class = answered_class(API, version, "groups")
        array = asyncio.run(encode_array(group_class, _rows(5, []), API, Slices(2)))
        assert list(array.elements) == [
            encode_element(group_class, row, API) for row in _rows(5, [])
        ]


def test_configs_of_more_topics_than_a_slice_has_are_told_in_the_order_of_the_question() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        names = [f"topic-{number}" for number in range(TOPICS)]
        for name in names:
            await cluster.create(one, name, [1])
        for version in (1, 4):
            answer = await cluster.ask(
                one,
                DESCRIBE_CONFIGS,
                version,
                resources=[
                    {
                        "resource_type": TOPIC,
                        "resource_name": name,
                        "configuration_keys": ["retention.ms"],
                    }
                    for name in (*names, "missing")
                ],
                include_synonyms=True,
                **({"include_documentation": True} if version >= 3 else {}),
            )
            assert [result.resource_name for result in answer.results] == [*names, "missing"]
            *found, missing = answer.results
            assert all([config.name for config in one.configs] == ["retention.ms"] for one in found)
            assert missing.error_code is ErrorCode.unknown_topic_or_partition

    play(story)
