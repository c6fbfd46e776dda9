"""What a test's author mistyped is refused where it stands, with what there is instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest

import moldau
import moldau.testing
from moldau.errors import ConfigurationError
from moldau.testing.running_cluster import RunningCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with moldau.testing.cluster(1) as running:
        yield running


def test_an_option_that_no_broker_has_is_refused() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"did you mean num\.partitions\?"),
        moldau.testing.broker({"num.partitons": "3"}),
    ):
        pass


def test_a_value_that_is_no_text_is_refused_with_what_to_write() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"is a int; .* \{\"num\.partitions\": \"3\"\}"),
        moldau.testing.broker(cast("dict[str, str]", {"num.partitions": 3})),
    ):
        pass


def test_an_option_that_no_broker_of_a_cluster_has_is_refused() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"did you mean min\.insync\.replicas\?"),
        moldau.testing.cluster(config={"min.insync.replica": "1"}),
    ):
        pass


@pytest.mark.parametrize(
    "act",
    [
        lambda cluster: cluster.kill(9),
        lambda cluster: cluster.stop(9),
        lambda cluster: cluster.restart(9),
        lambda cluster: cluster.pause(9),
        lambda cluster: cluster.resume(9),
        lambda cluster: cluster.cut(1, 9),
        lambda cluster: cluster.inject("produce", "not_leader_or_follower", broker_id=9),
    ],
)
def test_a_broker_that_is_not_there_is_refused(
    cluster: RunningCluster, act: Callable[[RunningCluster], object]
) -> None:
    with pytest.raises(ValueError, match="there is no broker 9; there are 1"):
        act(cluster)


def test_an_error_that_kafka_does_not_have_is_refused(cluster: RunningCluster) -> None:
    with pytest.raises(ValueError, match="did you mean not_leader_or_follower"):
        cluster.inject("produce", "NOT_LEADER_OR_FOLOWER")
    with pytest.raises(ValueError, match="4711"):
        cluster.inject("produce", 4711)


@pytest.mark.parametrize("open_client", [moldau.Producer, moldau.Consumer, moldau.Admin])
def test_a_list_in_the_place_of_a_text_of_addresses_is_refused(
    open_client: Callable[[object], object],
) -> None:
    with pytest.raises(ConfigurationError, match=r"bootstrap is one text, .* and not \['127"):
        open_client(["127.0.0.1:9092"])


def test_what_there_is_shows_before_it_is_used() -> None:
    assert {"Producer", "Consumer", "read_table", "errors", "testing", "spark"} <= set(dir(moldau))
    assert not {"TYPE_CHECKING", "annotations"} & set(dir(moldau))
    assert {"broker", "cluster", "SimulatedCluster"} <= set(dir(moldau.testing))


def test_a_table_is_read_from_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with moldau.testing.broker() as broker:
        with moldau.Producer(broker.bootstrap) as producer:
            producer.send("clicks", value=b"home")
        monkeypatch.setenv("MOLDAU_BOOTSTRAP", broker.bootstrap)
        assert moldau.read_table("clicks").num_rows == 1
