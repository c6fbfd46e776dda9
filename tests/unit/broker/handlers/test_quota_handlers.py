"""AlterClientQuotas and DescribeClientQuotas, called by hand."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.handlers import alter_client_quotas, describe_client_quotas
from moldau.errors import ErrorCode

Entity = dict[str, str | None]


def entry(entity: Entity, **limits: float | None) -> dict[str, object]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in limits.items()
        ],
    }


async def alter(bench: HandlerBench, *entries: dict[str, object], **options: bool) -> list[Any]:
    asked = {"validate_only": False, **options}
    answer = await bench.call(alter_client_quotas, entries=list(entries), **asked)
    return [row.error_code for row in answer.entries]


async def describe(bench: HandlerBench, *, version: int = 1) -> dict[str, dict[str, float]]:
    answer = await bench.call(describe_client_quotas, version, components=[], strict=False)
    return {
        ",".join(f"{part.entity_type}={part.entity_name}" for part in row.entity): {
            one.key: one.value for one in row.values
        }
        for row in answer.entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_shown_and_removed(version: int) -> None:
    async def story(bench: HandlerBench) -> None:
        user: Entity = {"user": "alice"}
        both: Entity = {"user": None, "client-id": "app"}
        codes = await alter(
            bench,
            entry(user, producer_byte_rate=10.0, request_percentage=1.5),
            entry(both, consumer_byte_rate=20.0),
            entry({"ip": "10.0.0.1"}, connection_creation_rate=3.0),
        )
        assert codes == [ErrorCode.none] * 3
        assert await describe(bench, version=version) == {
            "user=alice": {"producer_byte_rate": 10.0, "request_percentage": 1.5},
            "user=None,client-id=app": {"consumer_byte_rate": 20.0},
            "ip=10.0.0.1": {"connection_creation_rate": 3.0},
        }
        await alter(
            bench, entry(user, producer_byte_rate=None), entry(both, consumer_byte_rate=None)
        )
        assert await describe(bench) == {
            "user=alice": {"request_percentage": 1.5},
            "ip=10.0.0.1": {"connection_creation_rate": 3.0},
        }

    with_broker(story)


def test_every_entity_fails_on_its_own() -> None:
    async def story(bench: HandlerBench) -> None:
        twice = entry({"user": "bob"}, producer_byte_rate=1.0)
        codes = await alter(
            bench,
            entry({"user": "alice"}, nonsense=1.0),
            entry({"user": "alice"}, producer_byte_rate=0.0),
            entry({"group": "g"}, producer_byte_rate=1.0),
            entry({"user": "carol"}, nonsense=None),
            twice,
            twice,
            entry({"user": "dave"}, producer_byte_rate=1.0),
        )
        invalid = ErrorCode.invalid_request
        assert codes == [
            invalid,
            invalid,
            ErrorCode.unsupported_version,
            invalid,
            invalid,
            invalid,
            ErrorCode.none,
        ]
        assert list(await describe(bench)) == ["user=dave"]

    with_broker(story)


def test_what_is_only_validated_changes_nothing() -> None:
    async def story(bench: HandlerBench) -> None:
        row = entry({"user": "alice"}, producer_byte_rate=1.0)
        assert await alter(bench, row, validate_only=True) == [ErrorCode.none]
        assert await describe(bench) == {}

    with_broker(story)


def test_a_filter_that_makes_no_sense_is_refused() -> None:
    async def story(bench: HandlerBench) -> None:
        components = [{"entity_type": "user", "match_type": 0, "match": None}]
        answer = await bench.call(describe_client_quotas, components=components, strict=False)
        assert (answer.error_code, answer.entries) == (ErrorCode.invalid_request, None)

    with_broker(story)
