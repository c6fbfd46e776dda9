"""What one API is asked about in several kinds: each kind refuses somebody who may do nothing, in
every version, and does not tell what exists. The walk over all APIs asks for one kind of each."""

from __future__ import annotations

from collections.abc import Mapping
from unittest.mock import patch

import pytest

from broker.handlers import test_authorization_walk as walk
from broker.handlers.handler_bench import WITH_AUTHORIZER, HandlerBench, with_broker
from moldau.broker.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from moldau.broker.handlers import load_handler
from moldau.errors import ErrorCode
from moldau.wire.apis import SERVED

TOPIC_CODE = ErrorCode.topic_authorization_failed
GROUP_CODE = ErrorCode.group_authorization_failed
CLUSTER_CODE = ErrorCode.cluster_authorization_failed

CONFIGS = {
    TOPIC: TOPIC_CODE,
    BROKER: CLUSTER_CODE,
    BROKER_LOGGER: CLUSTER_CODE,
    CLIENT_METRICS: CLUSTER_CODE,
    GROUP: GROUP_CODE,
    99: CLUSTER_CODE,  # none that there is
}
COORDINATORS = {
    0: GROUP_CODE,
    1: ErrorCode.transactional_id_authorization_failed,
    2: CLUSTER_CODE,
}

KINDS: list[tuple[str, Mapping[str, int], ErrorCode]] = [
    *(
        (name, {"resource_type": kind}, code)
        for name in ("describe_configs", "alter_configs", "incremental_alter_configs")
        for kind, code in CONFIGS.items()
    ),
    *(("find_coordinator", {"key_type": kind}, code) for kind, code in COORDINATORS.items()),
    ("offset_for_leader_epoch", {"replica_id": 2}, TOPIC_CODE),
    ("fetch", {"replica_id": 2}, TOPIC_CODE),
]


@pytest.mark.parametrize(("name", "numbers", "code"), KINDS, ids=str)
def test_every_kind_is_refused(name: str, numbers: Mapping[str, int], code: ErrorCode) -> None:
    handler = load_handler(next(api for api in SERVED if api.snake_name == name))

    async def story(bench: HandlerBench) -> None:
        await walk.make_secrets(bench)
        topic_id = bench.services.image.topics[walk.SECRET].topic_id
        first = max(handler.API.first, 1 if "key_type" in numbers else 0)
        for version in range(first, handler.API.last + 1):
            exists, absent = [
                await walk.ask(bench, handler, version, asked, topic_id)
                for asked in (walk.SECRET, walk.ABSENT)
            ]
            if exists.by_id:
                continue
            told = absent.body.replace(walk.ABSENT.encode(), walk.SECRET.encode())
            assert exists.body == told, f"version {version} tells them apart"
            assert exists.codes - {ErrorCode.none} <= walk.REFUSALS
            assert exists.codes & walk.REFUSALS, f"version {version} refuses nothing"
            if name != "fetch":
                assert code in exists.codes

    with patch.dict(walk.NUMBERS, numbers):
        with_broker(story, **WITH_AUTHORIZER)
