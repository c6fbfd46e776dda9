"""Where the brokers of one machine are, and who must not be left out."""

from __future__ import annotations

import pytest

from moldau.broker.broker_places import (
    automatic_count,
    default_settings,
    plan_places,
    refuse_left_out,
    restart_delay,
)
from moldau.config.broker_options import BrokerOptions
from moldau.errors import ConfigurationError


def options(**settings: str) -> BrokerOptions:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return BrokerOptions.resolve({"log.dirs": "/d", **named})


def test_the_first_is_the_broker_that_would_be_alone_and_the_others_count_on() -> None:
    first, second, third = plan_places(options(listeners="PLAINTEXT://h:9092"), 3, first_id=1)
    assert first.settings() == {
        "broker.id": "1",
        "log.dirs": "/d",
        "listeners": "PLAINTEXT://h:9092",
    }
    assert second.settings()["listeners"] == "PLAINTEXT://h:9093"
    assert third.settings()["log.dirs"] == "/d/brokers/3"


def test_every_folder_listener_and_advertised_address_has_its_counterpart() -> None:
    given = options(
        log_dirs="/a,/b",
        listeners="IN://:9092,OUT://:9192",
        advertised_listeners="IN://me:19092,OUT://me:19192",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        inter_broker_listener_name="IN",
    )
    _, second = plan_places(given, 2, first_id=7)
    assert second.settings() == {
        "broker.id": "8",
        "log.dirs": "/a/brokers/8,/b/brokers/8",
        "listeners": "IN://:9093,OUT://:9193",
        "advertised.listeners": "IN://me:19093,OUT://me:19193",
    }


def test_any_free_port_is_any_free_port_for_all() -> None:
    places = plan_places(options(listeners="PLAINTEXT://h:0"), 2, first_id=1)
    assert [place.settings()["listeners"] for place in places] == ["PLAINTEXT://h:0"] * 2


def test_ports_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="65536"):
        plan_places(options(listeners="PLAINTEXT://h:65535"), 2, first_id=1)


@pytest.mark.parametrize(("count", "replicas"), [(2, "2"), (3, "3"), (8, "3")])
def test_internal_topics_have_three_replicas_as_far_as_there_are_brokers(
    count: int, replicas: str
) -> None:
    settings = default_settings((), count)
    assert settings["offsets.topic.replication.factor"] == replicas
    assert settings["transaction.state.log.replication.factor"] == replicas
    assert "default.replication.factor" not in settings


def test_what_somebody_set_is_left_alone() -> None:
    given = ("offsets.topic.replication.factor", "zookeeper.session.timeout.ms")
    assert default_settings(given, 3).keys().isdisjoint(given)


@pytest.mark.parametrize(("cores", "count"), [(0, 1), (1, 1), (4, 4), (64, 8)])
def test_automatic_means_one_for_each_core_up_to_eight(cores: int, count: int) -> None:
    assert automatic_count(cores) == count


def test_brokers_that_hold_replicas_are_not_left_out() -> None:
    replicas = {1: ["a"], 2: ["a", "b"], 3: ["b"]}
    assert refuse_left_out(replicas, (1, 2, 3)) is None
    assert refuse_left_out(replicas, (1, 2, 3, 4)) is None
    refusal = refuse_left_out(replicas, (1,))
    assert refusal is not None
    assert "brokers 2, 3 would not run" in refusal
    assert "--brokers 3" in refusal
    assert "--brokers 1 --replication-factor 1 > plan.json" in refusal


def test_brokers_that_hold_nothing_may_go() -> None:
    assert refuse_left_out({1: ["a"]}, (1,)) is None
    assert refuse_left_out({}, (1,)) is None


def test_a_broker_that_ends_again_and_again_is_started_ever_later() -> None:
    delays = [restart_delay(ends) for ends in range(12)]
    assert delays[0] == 0
    assert delays == sorted(delays)
    assert delays[-1] == 30
