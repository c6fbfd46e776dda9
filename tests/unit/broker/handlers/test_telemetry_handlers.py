"""Clients' own metrics: subscriptions as configs, and what clients are told."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.handlers import (
    alter_configs,
    describe_configs,
    get_telemetry_subscriptions,
    incremental_alter_configs,
    list_config_resources,
    push_telemetry,
)
from moldau.errors import ErrorCode
from moldau.wire.apis import API_VERSIONS, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY

CLIENT_METRICS = 16
SET, DELETE, APPEND = 0, 1, 2


async def change(bench: HandlerBench, name: str, *rows: tuple[str, int, str | None]) -> Any:
    configs = [
        {"name": key, "config_operation": operation, "value": value}
        for key, operation, value in rows
    ]
    wanted = {"resource_type": CLIENT_METRICS, "resource_name": name, "configs": configs}
    answer = await bench.call(incremental_alter_configs, resources=[wanted], validate_only=False)
    return answer.responses[0]


async def describe(bench: HandlerBench, name: str) -> dict[str, tuple[str, int]]:
    wanted = {
        "resource_type": CLIENT_METRICS,
        "resource_name": name,
        "configuration_keys": None,
    }
    answer = await bench.call(
        describe_configs, resources=[wanted], include_synonyms=False, include_documentation=False
    )
    return {row.name: (row.value, row.config_source) for row in answer.results[0].configs}


def test_a_subscription_is_set_appended_to_listed_and_unset() -> None:
    async def story(bench: HandlerBench) -> None:
        done = await change(bench, "java", ("metrics", SET, "a."), ("interval.ms", SET, "1000"))
        assert done.error_code is ErrorCode.none
        await change(bench, "java", ("metrics", APPEND, "b."))
        assert await describe(bench, "java") == {
            "interval.ms": ("1000", 7),
            "match": ("", 5),
            "metrics": ("a.,b.", 7),
        }
        listed = await bench.call(list_config_resources, resource_types=(CLIENT_METRICS,))
        assert [row.resource_name for row in listed.config_resources] == ["java"]
        (one,) = bench.services.telemetry.configs.subscriptions
        assert (one.metrics, one.interval_ms) == (("a.", "b."), 1000)
        await change(bench, "java", ("metrics", DELETE, None), ("interval.ms", DELETE, None))
        assert bench.services.telemetry.configs.settings == {}

    with_broker(story)


def test_all_of_a_subscription_is_replaced() -> None:
    async def story(bench: HandlerBench) -> None:
        for value in ("a", "b"):
            wanted = {
                "resource_type": CLIENT_METRICS,
                "resource_name": "a/b %",
                "configs": [{"name": "metrics", "value": value}],
            }
            answer = await bench.call(alter_configs, resources=[wanted], validate_only=False)
            assert answer.responses[0].error_code is ErrorCode.none
        assert bench.services.telemetry.configs.settings == {"a/b %": {"metrics": "b"}}

    with_broker(story)


def test_wrong_settings_are_refused() -> None:
    async def story(bench: HandlerBench) -> None:
        for key, value in (
            ("interval.ms", "99"),
            ("match", "client_id=("),
            ("match", "shoe_size=4"),
            ("metric", "a"),
        ):
            refused = await change(bench, "x", (key, SET, value))
            assert refused.error_code is ErrorCode.invalid_config, (key, value)
        assert bench.services.telemetry.configs.settings == {}

    with_broker(story)


def test_a_client_is_told_what_to_push_and_may_push_that() -> None:
    async def story(bench: HandlerBench) -> None:
        await change(bench, "all", ("metrics", SET, "*"), ("interval.ms", SET, "500"))
        told = await bench.call(get_telemetry_subscriptions, client_instance_id=None)
        assert told.error_code is ErrorCode.none
        assert isinstance(told.client_instance_id, UUID)
        assert told.requested_metrics == ("",)
        assert told.accepted_compression_types == (4, 3, 1, 2)
        assert told.push_interval.total_seconds() == 0.5
        answers = []
        for subscription in (told.subscription_id, told.subscription_id ^ 1):
            answer = await bench.call(
                push_telemetry,
                client_instance_id=told.client_instance_id,
                subscription_id=subscription,
                terminating=False,
                compression_type=0,
                metrics=b"",
            )
            answers.append(answer.error_code)
        assert answers == [ErrorCode.none, ErrorCode.unknown_subscription_id]

    with_broker(story)


@pytest.mark.parametrize("options", [{}, {"metrics_listener": "127.0.0.1:9404"}], ids=str)
def test_the_apis_are_advertised_once_there_is_a_subscription_that_somebody_can_read(
    options: dict[str, str],
) -> None:
    async def story(bench: HandlerBench) -> None:
        async def are_advertised() -> bool:
            (machine,) = bench.cluster.machines.values()
            answer = await bench.cluster.ask(machine, API_VERSIONS.key, 2)
            keys = {row.api_key for row in answer.api_keys}
            return {GET_TELEMETRY_SUBSCRIPTIONS.key, PUSH_TELEMETRY.key} <= keys

        assert not await are_advertised()
        await change(bench, "java", ("metrics", SET, "a."))
        assert await are_advertised() is bool(options)
        await change(bench, "java", ("metrics", DELETE, None))
        assert not await are_advertised()

    with_broker(story, **options)
