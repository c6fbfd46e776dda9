"""The levels of loggers, described and changed as Kafka does it (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
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

SET, DELETE, APPEND = 0, 1, 2
LOGGER = "moldau.test_logger_handlers.one"


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """A logger below a package that has none, and everything as it was afterwards."""
    before = logging.root.level
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)
    yield
    logging.root.setLevel(before)
    for name in (LOGGER, LOGGER.rpartition(".")[0], "moldau"):
        logging.getLogger(name).setLevel(logging.NOTSET)


async def describe(bench: HandlerBench, name: str = "1", *keys: str) -> Any:
    row = {
        "resource_type": 8,
        "resource_name": name,
        "configuration_keys": keys or None,
    }
    answer = await bench.call(
        describe_configs, resources=[row], include_synonyms=True, include_documentation=False
    )
    return answer.results[0]


async def level(bench: HandlerBench, logger: str) -> str:
    (found,) = (await describe(bench, "1", logger)).configs
    assert (found.config_source, found.read_only, found.is_sensitive) == (6, False, False)
    return str(found.value)


async def alter(
    bench: HandlerBench, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> ErrorCode:
    row = {
        "resource_type": 8,
        "resource_name": "1",
        "configs": [
            {"name": name, "config_operation": operation, "value": value}
            for name, operation, value in changes
        ],
    }
    answer = await bench.call(
        incremental_alter_configs, resources=[row], validate_only=validate_only
    )
    code: ErrorCode = answer.responses[0].error_code
    return code


def test_a_level_is_set_and_unset() -> None:
    async def story(bench: HandlerBench) -> None:
        logging.root.setLevel(logging.WARNING)
        assert await level(bench, LOGGER) == "WARN"
        assert await alter(bench, (LOGGER, SET, "DEBUG")) is ErrorCode.none
        assert logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)
        assert await level(bench, LOGGER) == "DEBUG"
        assert await alter(bench, (LOGGER, DELETE, None)) is ErrorCode.none
        assert await level(bench, LOGGER) == "WARN"
        assert await alter(bench, ("root", SET, "ERROR")) is ErrorCode.none
        assert await level(bench, LOGGER) == await level(bench, "root") == "ERROR"

    with_broker(story)


def test_a_package_has_a_level_that_holds_for_its_loggers() -> None:
    async def story(bench: HandlerBench) -> None:
        package = LOGGER.rpartition(".")[0]
        assert await alter(bench, (package, SET, "TRACE")) is ErrorCode.none
        assert await level(bench, LOGGER) == "TRACE"

    with_broker(story)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("no.such.logger", SET, "INFO"), ErrorCode.invalid_config),
        ((LOGGER, SET, "LOUD"), ErrorCode.invalid_config),
        ((LOGGER, SET, None), ErrorCode.invalid_config),
        ((LOGGER, APPEND, "INFO"), ErrorCode.invalid_request),
        (("root", DELETE, None), ErrorCode.invalid_request),
    ],
)
def test_nonsense_is_refused_and_nothing_of_the_request_is_done(
    change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    async def story(bench: HandlerBench) -> None:
        before = await level(bench, LOGGER)
        assert await alter(bench, (LOGGER, SET, "TRACE"), change) is code
        assert await level(bench, LOGGER) == before

    with_broker(story)


def test_what_is_only_validated_changes_nothing() -> None:
    async def story(bench: HandlerBench) -> None:
        before = await level(bench, LOGGER)
        code = await alter(bench, (LOGGER, SET, "TRACE"), validate_only=True)
        assert code is ErrorCode.none
        assert await level(bench, LOGGER) == before

    with_broker(story)


def test_loggers_are_those_of_one_broker() -> None:
    async def story(bench: HandlerBench) -> None:
        assert (await describe(bench, "2")).error_code is ErrorCode.invalid_request
        assert (await describe(bench, "")).error_code is ErrorCode.invalid_request
        listed = await bench.call(list_config_resources, resource_types=[8])
        assert [one.resource_name for one in listed.config_resources] == ["1"]
        row = {
            "resource_type": 8,
            "resource_name": "1",
            "configs": [{"name": LOGGER, "value": "INFO"}],
        }
        answer = await bench.call(alter_configs, resources=[row], validate_only=False)
        assert answer.responses[0].error_code is ErrorCode.invalid_request

    with_broker(story)
