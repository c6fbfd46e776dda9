"""Configs described, altered and listed: what is answered, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from moldau.errors import ErrorCode

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def resource(kind: int, name: str, *configs: Mapping[str, object]) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configs": configs}


async def describe(bench: HandlerBench, kind: int, name: str, *keys: str) -> Any:
    wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": keys or None}
    answer = await bench.call(describe_configs, resources=[wanted], include_synonyms=True)
    return answer.results[0]


def values_of(result: Any) -> dict[str, str | None]:
    return {one.name: one.value for one in result.configs}


def test_every_option_of_a_topic_is_described_with_its_value() -> None:
    async def story(bench: HandlerBench) -> None:
        every = await describe(bench, TOPIC, "clicks")
        assert every.error_code is ErrorCode.none
        assert values_of(every)["cleanup.policy"] == "delete"
        one = await describe(bench, TOPIC, "clicks", "retention.ms", "no.such.option")
        assert values_of(one) == {"retention.ms": "604800000"}
        assert one.configs[0].synonyms

    with_broker(story)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "clicks"), (BROKER, "1"), (GROUP, "readers")])
def test_an_empty_list_of_names_describes_every_option(kind: int, name: str) -> None:
    async def story(bench: HandlerBench) -> None:
        wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": ()}
        answer = await bench.call(describe_configs, resources=[wanted], include_synonyms=True)
        every = await describe(bench, kind, name)
        assert values_of(answer.results[0]) == values_of(every)
        assert every.configs

    with_broker(story)


def test_a_broker_describes_itself_and_the_defaults_of_all() -> None:
    async def story(bench: HandlerBench) -> None:
        assert values_of(await describe(bench, BROKER, "1"))["broker.id"] == "1"
        assert values_of(await describe(bench, BROKER, "")) == {}

    with_broker(story)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "views", ErrorCode.unknown_topic_or_partition),
        (BROKER, "two", ErrorCode.invalid_request),
        (99, "clicks", ErrorCode.invalid_request),
        (BROKER_LOGGER, "2", ErrorCode.invalid_request),
        (CLIENT_METRICS, "", ErrorCode.invalid_request),
        (GROUP, "", ErrorCode.invalid_request),
    ],
)
@pytest.mark.parametrize("handler", [describe_configs, alter_configs, incremental_alter_configs])
def test_what_is_not_there_has_no_configs(
    handler: Any, kind: int, name: str, code: ErrorCode
) -> None:
    async def story(bench: HandlerBench) -> None:
        if handler is describe_configs:
            found = await describe(bench, kind, name)
        else:
            answer = await bench.call(
                handler, resources=[resource(kind, name)], validate_only=False
            )
            found = answer.responses[0]
        assert found.error_code is code
        assert found.error_message

    with_broker(story)


def test_alter_configs_replaces_all_that_was_set() -> None:
    async def story(bench: HandlerBench) -> None:
        for name, value in (("retention.ms", "1000"), ("segment.bytes", "2000000")):
            wanted = resource(TOPIC, "clicks", {"name": name, "value": value})
            answer = await bench.call(alter_configs, resources=[wanted], validate_only=False)
            assert answer.responses[0].error_code is ErrorCode.none
        assert bench.services.image.topics["clicks"].configs == {"segment.bytes": "2000000"}

    with_broker(story)


def test_incremental_changes_leave_the_others_alone() -> None:
    async def story(bench: HandlerBench) -> None:
        async def change(name: str, operation: int, value: str | None) -> ErrorCode:
            row = {"name": name, "config_operation": operation, "value": value}
            wanted = resource(TOPIC, "clicks", row)
            answer = await bench.call(
                incremental_alter_configs, resources=[wanted], validate_only=False
            )
            code: ErrorCode = answer.responses[0].error_code
            return code

        assert await change("retention.ms", SET, "1000") is ErrorCode.none
        assert await change("cleanup.policy", APPEND, "compact") is ErrorCode.none
        configs = bench.services.image.topics["clicks"].configs
        assert configs == {"retention.ms": "1000", "cleanup.policy": "delete,compact"}
        assert await change("cleanup.policy", SUBTRACT, "delete") is ErrorCode.none
        assert await change("retention.ms", DELETE, None) is ErrorCode.none
        assert bench.services.image.topics["clicks"].configs == {"cleanup.policy": "compact"}
        assert await change("retention.ms", 7, "1") is ErrorCode.invalid_request
        assert await change("retention.ms", SET, "soon") is ErrorCode.invalid_config
        assert await change("no.such.option", SET, "1") is ErrorCode.invalid_config

    with_broker(story)


def test_an_option_that_stands_in_the_request_twice_is_refused() -> None:
    async def story(bench: HandlerBench) -> None:
        row = {"name": "retention.ms", "value": "1000"}
        wanted = resource(TOPIC, "clicks", row, row)
        answer = await bench.call(alter_configs, resources=[wanted], validate_only=False)
        assert answer.responses[0].error_code is ErrorCode.invalid_request
        assert not bench.services.image.topics["clicks"].configs

    with_broker(story)


@pytest.mark.parametrize("handler", [alter_configs, incremental_alter_configs])
def test_what_is_only_to_be_validated_is_not_set(handler: Any) -> None:
    async def story(bench: HandlerBench) -> None:
        row = {"name": "retention.ms", "config_operation": SET, "value": "1000"}
        if handler is alter_configs:
            del row["config_operation"]
        wanted = resource(TOPIC, "clicks", row)
        answer = await bench.call(handler, resources=[wanted], validate_only=True)
        assert answer.responses[0].error_code is ErrorCode.none
        assert not bench.services.image.topics["clicks"].configs

    with_broker(story)


def test_a_group_is_described_and_altered_before_it_exists() -> None:
    async def story(bench: HandlerBench) -> None:
        session = "consumer.session.timeout.ms"

        async def change(operation: int, value: str | None) -> Any:
            row = {"name": session, "config_operation": operation, "value": value}
            wanted = resource(GROUP, "readers", row)
            answer = await bench.call(
                incremental_alter_configs, resources=[wanted], validate_only=False
            )
            return answer.responses[0]

        assert values_of(await describe(bench, GROUP, "readers"))[session] == "45000"
        assert (await change(SET, "60000")).error_code is ErrorCode.none
        (found,) = (await describe(bench, GROUP, "readers", session)).configs
        assert (found.value, found.config_source) == ("60000", 8)
        assert [(one.name, one.source) for one in found.synonyms] == [
            (session, 8),
            ("group.consumer.session.timeout.ms", 5),
        ]
        for operation, value in ((SET, "1"), (SET, "soon"), (APPEND, "50000")):
            refused = await change(operation, value)
            assert refused.error_code is ErrorCode.invalid_config
            assert session in refused.error_message
        assert bench.services.image.group_config("readers") == {session: "60000"}
        answer = await bench.call(
            alter_configs, resources=[resource(GROUP, "readers")], validate_only=False
        )
        assert answer.responses[0].error_code is ErrorCode.none
        assert not bench.services.image.group_configs

    with_broker(story)


def test_what_has_configs_is_listed() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.services.admin.alter_group_configs(
            "readers", {"consumer.heartbeat.interval.ms": "6000"}
        )

        async def listed(*types: int) -> list[tuple[int, str]]:
            answer = await bench.call(list_config_resources, resource_types=types)
            assert answer.error_code is ErrorCode.none
            return [(row.resource_type, row.resource_name) for row in answer.config_resources]

        every = [(TOPIC, "clicks"), (BROKER, "1"), (BROKER_LOGGER, "1"), (GROUP, "readers")]
        assert await listed() == every
        assert await listed(GROUP, BROKER) == [every[1], every[3]]
        assert await listed(CLIENT_METRICS) == []
        answer = await bench.call(list_config_resources, resource_types=(99,))
        assert answer.error_code is ErrorCode.unsupported_version
        answer = await bench.call(list_config_resources, version=0)
        assert (answer.error_code, answer.config_resources) == (ErrorCode.none, ())

    with_broker(story)
