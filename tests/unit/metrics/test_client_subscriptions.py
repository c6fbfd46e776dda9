"""What a client is asked for: the sum of what fits it."""

from __future__ import annotations

from uuid import UUID

from moldau.metrics.client_metrics import DEFAULT_INTERVAL_MS, ClientSubscription, request_metrics

CLIENT = {"client_id": "orders-1", "client_software_name": "apache-kafka-java"}
INSTANCE = UUID(int=5)
ALL = ClientSubscription(name="all", metrics=("*",), interval_ms=5000)
JAVA = ClientSubscription(
    name="java",
    metrics=("org.apache.kafka.producer.",),
    interval_ms=1000,
    match={"client_software_name": "apache-.*", "client_id": "orders-[0-9]"},
)
OTHER = ClientSubscription(name="other", metrics=("x",), interval_ms=1, match={"client_id": "no"})


def test_without_subscriptions_nothing_is_asked_for() -> None:
    asked = request_metrics((OTHER,), CLIENT, INSTANCE)
    assert (asked.metrics, asked.interval_ms) == ((), DEFAULT_INTERVAL_MS)


def test_all_that_fits_is_added_up_with_the_shortest_interval() -> None:
    asked = request_metrics((JAVA, OTHER), CLIENT, INSTANCE)
    assert (asked.metrics, asked.interval_ms) == (JAVA.metrics, 1000)
    assert request_metrics((JAVA, ALL), CLIENT, INSTANCE).metrics == ("",)


def test_a_pattern_has_to_fit_the_whole_text() -> None:
    assert not JAVA.fits({**CLIENT, "client_id": "orders-10"})


def test_the_id_changes_with_what_is_asked_for_and_only_then() -> None:
    one, other = (request_metrics((JAVA,), CLIENT, INSTANCE) for _ in range(2))
    assert one.subscription_id == other.subscription_id
    assert request_metrics((ALL,), CLIENT, INSTANCE).subscription_id != one.subscription_id
    assert request_metrics((JAVA,), CLIENT, UUID(int=6)).subscription_id != one.subscription_id
    assert -(2**31) <= one.subscription_id < 2**31
