"""The APIs of groups: a member's whole life by hand, groups and topics that are not there, and
requests that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from moldau.errors import ErrorCode


async def find(bench: HandlerBench, *group_ids: str, key_type: int = 0) -> Any:
    """Also makes the topic of committed offsets; whoever coordinates has loaded its part then."""
    answer = await bench.call(find_coordinator, key_type=key_type, coordinator_keys=group_ids)
    await bench.cluster.clock.advance(1.0)
    return answer.coordinators


async def join(bench: HandlerBench, group_id: str = "g", **more: Any) -> Any:
    asked = {
        "group_id": group_id,
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
        "reason": None,
        **more,
    }
    return await bench.call(join_group, **asked)


async def work(bench: HandlerBench) -> str:
    """Be the only member of g, at work; the member's id."""
    await find(bench, "g")
    first = await join(bench)
    assert first.error_code is ErrorCode.member_id_required
    joined = await join(bench, member_id=first.member_id)
    assert (joined.error_code, joined.leader) == (ErrorCode.none, first.member_id)
    synced = await bench.call(
        sync_group,
        group_id="g",
        generation_id=joined.generation_id,
        member_id=first.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": first.member_id, "assignment": b"all"}],
    )
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"all")
    member_id: str = first.member_id
    return member_id


async def beat(bench: HandlerBench, member_id: str, generation: int = 1, group: str = "g") -> Any:
    asked = {"group_id": group, "generation_id": generation, "member_id": member_id}
    answer = await bench.call(heartbeat, group_instance_id=None, **asked)
    return answer.error_code


async def commit(
    bench: HandlerBench, topic: str, offset: int, member_id: str = "", generation: int = -1
) -> Any:
    row = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": 0,
        "committed_metadata": "noted",
    }
    answer = await bench.call(
        offset_commit,
        version=9,
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=None,
        topics=[{"name": topic, "partitions": [row]}],
    )
    return answer.topics[0].partitions[0].error_code


async def committed(bench: HandlerBench, group_id: str = "g", topics: Any = None) -> Any:
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
    answer = await bench.call(offset_fetch, version=9, groups=[group], require_stable=False)
    return answer.groups[0]


def test_a_coordinator_is_found_for_groups_alone() -> None:
    async def story(bench: HandlerBench) -> None:
        (found,) = await find(bench, "g")
        assert (found.error_code, found.node_id, found.key) == (ErrorCode.none, 1, "g")
        (strange,) = await find(bench, "g", key_type=9)
        assert strange.error_code is not ErrorCode.none

    with_broker(story)


def test_a_member_works_beats_and_goes() -> None:
    async def story(bench: HandlerBench) -> None:
        member_id = await work(bench)
        assert await beat(bench, member_id) is ErrorCode.none
        assert await beat(bench, member_id, generation=9) is ErrorCode.illegal_generation
        assert await beat(bench, "nobody") is ErrorCode.unknown_member_id
        members = [
            {"member_id": one, "group_instance_id": None, "reason": None}
            for one in (member_id, "nobody")
        ]
        left = await bench.call(leave_group, group_id="g", members=members)
        assert [row.error_code for row in left.members] == [
            ErrorCode.none,
            ErrorCode.unknown_member_id,
        ]
        assert await beat(bench, member_id) is ErrorCode.unknown_member_id

    with_broker(story)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout": 1}, ErrorCode.invalid_session_timeout),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(values: dict[str, Any], code: ErrorCode) -> None:
    async def story(bench: HandlerBench) -> None:
        await find(bench, "g")
        assert (await join(bench, **values)).error_code is code

    with_broker(story)


def test_a_sync_of_nobody_is_refused() -> None:
    async def story(bench: HandlerBench) -> None:
        await find(bench, "g")
        answer = await bench.call(
            sync_group,
            group_id="g",
            generation_id=1,
            member_id="nobody",
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        assert answer.error_code is ErrorCode.unknown_member_id

    with_broker(story)


def test_groups_are_listed_described_and_deleted_when_they_are_empty() -> None:
    async def story(bench: HandlerBench) -> None:
        member_id = await work(bench)
        listed = await bench.call(list_groups, states_filter=(), types_filter=())
        assert [row.group_id for row in listed.groups] == ["g"]
        none = await bench.call(list_groups, states_filter=("Empty",), types_filter=())
        assert none.groups == ()
        described = await bench.call(
            describe_groups, groups=("g", "other"), include_authorized_operations=False
        )
        known, missing = described.groups
        assert (known.group_state, known.members[0].member_id) == ("Stable", member_id)
        assert missing.error_code is ErrorCode.group_id_not_found
        deleted = await bench.call(delete_groups, groups_names=("g", "other"))
        assert [row.error_code for row in deleted.results] == [
            ErrorCode.non_empty_group,
            ErrorCode.group_id_not_found,
        ]

    with_broker(story)


def test_offsets_are_committed_fetched_and_deleted() -> None:
    async def story(bench: HandlerBench) -> None:
        await find(bench, "g")
        assert await commit(bench, "clicks", 42) is ErrorCode.none
        (topic,) = (await committed(bench)).topics
        assert (topic.name, topic.partitions[0].committed_offset) == ("clicks", 42)
        asked = [{"name": "clicks", "partition_indexes": (0, 1)}]
        (topic,) = (await committed(bench, topics=asked)).topics
        assert [one.committed_offset for one in topic.partitions] == [42, -1]
        rows = [{"name": "clicks", "partitions": [{"partition_index": 0}]}]
        await bench.call(offset_delete, group_id="g", topics=rows)
        assert (await committed(bench)).topics == ()

    with_broker(story)


def test_commits_of_strangers_and_to_unknown_topics_are_refused() -> None:
    async def story(bench: HandlerBench) -> None:
        member_id = await work(bench)
        assert await commit(bench, "clicks", 1, member_id, 1) is ErrorCode.none
        assert await commit(bench, "clicks", 1, member_id, 7) is ErrorCode.illegal_generation
        assert await commit(bench, "clicks", 1, "nobody", 1) is ErrorCode.unknown_member_id
        unknown = await commit(bench, "views", 1, member_id, 1)
        assert unknown is ErrorCode.unknown_topic_or_partition

    with_broker(story)


def test_offsets_of_a_group_that_is_not_there_are_none_and_cannot_be_deleted() -> None:
    async def story(bench: HandlerBench) -> None:
        await find(bench, "g")
        assert (await committed(bench, "other")).topics == ()
        rows = [{"name": "clicks", "partitions": [{"partition_index": 0}]}]
        answer = await bench.call(offset_delete, group_id="other", topics=rows)
        assert answer.error_code is ErrorCode.group_id_not_found

    with_broker(story)
