"""UpdateFeatures and UnregisterBroker: what a cluster on ZooKeeper can answer."""

from __future__ import annotations

import pytest

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.control_plane import GROUP_VERSION, SUPPORTED_FEATURES, find_update_fault
from moldau.broker.handlers import unregister_broker, update_features
from moldau.errors import ErrorCode


def test_the_level_in_force_can_be_asked_for() -> None:
    for feature in SUPPORTED_FEATURES:
        assert find_update_fault(feature.name, feature.last) is None


@pytest.mark.parametrize(
    ("name", "level", "code"),
    [
        ("transaction.version", 1, ErrorCode.feature_update_failed),
        ("group.version", 0, ErrorCode.feature_update_failed),
        ("group.version", 2, ErrorCode.invalid_update_version),
        ("group.version", -1, ErrorCode.invalid_update_version),
        ("metadata.version", 25, ErrorCode.invalid_update_version),
    ],
)
def test_every_other_level_is_refused(name: str, level: int, code: ErrorCode) -> None:
    fault = find_update_fault(name, level)
    assert fault is not None
    assert fault.code is code
    assert name in fault.message


def test_up_to_version_1_each_feature_has_its_answer_unless_one_refuses_them_all() -> None:
    async def story(bench: HandlerBench) -> None:
        good: dict[str, object] = {"feature": "transaction.version", "max_version_level": 2}
        bad: dict[str, object] = {"feature": "kraft.version", "max_version_level": 1}
        for version, more in ((0, {"allow_downgrade": False}), (1, {"upgrade_type": 1})):
            options = {"validate_only": False} if version else {}
            answers = [
                await bench.call(
                    update_features,
                    version,
                    timeout=1_000,
                    feature_updates=[{**row, **more} for row in rows],
                    **options,
                )
                for rows in ([good], [good, bad])
            ]
            assert [answer.error_code for answer in answers] == [
                ErrorCode.none,
                ErrorCode.invalid_update_version,
            ]
            assert [(row.feature, row.error_code) for row in answers[0].results] == [
                ("transaction.version", ErrorCode.none)
            ]
            assert not answers[1].results
            assert "kraft.version" in answers[1].error_message

    with_broker(story)


def test_from_version_2_on_there_is_one_answer() -> None:
    async def story(bench: HandlerBench) -> None:
        for level, code in (
            (GROUP_VERSION.last, ErrorCode.none),
            (GROUP_VERSION.first, ErrorCode.feature_update_failed),
        ):
            row = {"feature": "group.version", "max_version_level": level, "upgrade_type": 3}
            answer = await bench.call(
                update_features, timeout=1_000, feature_updates=[row], validate_only=False
            )
            assert answer.error_code is code
            assert bool(answer.error_message) is (code is not ErrorCode.none)

    with_broker(story)


def test_a_living_broker_is_not_unregistered_and_a_dead_one_is_not_registered() -> None:
    async def story(bench: HandlerBench) -> None:
        answer = await bench.call(unregister_broker, broker_id=1)
        assert answer.error_code is ErrorCode.invalid_request
        assert "alive" in answer.error_message
        answer = await bench.call(unregister_broker, broker_id=7)
        assert answer.error_code is ErrorCode.broker_id_not_registered
        assert 1 in bench.services.image.brokers

    with_broker(story)
