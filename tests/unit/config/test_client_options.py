"""Options of clients: keyword arguments with Kafka's names."""

from __future__ import annotations

import pytest

from moldau.config.client_options import ACKS_ALL, ClientOptions, ProducerOptions
from moldau.errors import ConfigurationError


def test_the_defaults_are_kafkas_but_for_the_size_of_a_batch() -> None:
    options = ProducerOptions.read({})
    assert options.acks == ACKS_ALL
    assert options.enable_idempotence
    assert options.linger_ms == 5
    assert options.batch_size == 128 * 1024
    assert options.buffer_memory == 32 * 1024 * 1024
    assert options.max_block_ms == 60_000
    assert options.delivery_timeout_ms == 120_000
    assert options.request_timeout_ms == 30_000
    assert options.retries == 2**31 - 1
    assert options.max_in_flight_requests_per_connection == 5
    assert options.max_request_size == 1024 * 1024
    assert options.compression_type == "none"


@pytest.mark.parametrize(
    "keywords", [{"linger_ms": 20}, {"linger_ms": "20"}, {"linger.ms": 20}, {"linger.ms": "20"}]
)
def test_a_name_has_dots_or_underscores_and_a_value_is_a_number_or_text(
    keywords: dict[str, object],
) -> None:
    assert ProducerOptions.read(keywords).linger_ms == 20


@pytest.mark.parametrize(("given", "meant"), [("all", -1), (-1, -1), (0, 0), (1, 1), ("1", 1)])
def test_acks_is_a_word_or_a_number(given: object, meant: int) -> None:
    assert ProducerOptions.read({"acks": given}).acks == meant


def test_none_is_as_good_as_not_given() -> None:
    assert ProducerOptions.read({"compression_type": None}).compression_type == "none"


def test_a_misspelt_name_is_refused_with_a_guess() -> None:
    with pytest.raises(
        ConfigurationError, match="not an option of a producer; did you mean linger_ms"
    ):
        ProducerOptions.read({"lingerms": 1})
    with pytest.raises(ConfigurationError, match="not an option of a client"):
        ClientOptions.read({"acks": 1})


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"acks": 2}, "acks=2 is not one of"),
        ({"linger_ms": -1}, "linger.ms=-1 is less than 0"),
        ({"batch_size": "many"}, "batch.size=many is not a whole number"),
        ({"compression_type": "brotli"}, "compression.type=brotli is not one of none, gzip"),
        ({"enable_idempotence": "perhaps"}, "neither true nor false"),
        ({"compression_zstd_level": 23}, "is not between -131072 and 22"),
    ],
)
def test_a_wrong_value_is_refused_in_a_message(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ProducerOptions.read(keywords)


@pytest.mark.parametrize(
    "keywords",
    [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}],
)
def test_idempotence_gives_way_unless_it_was_asked_for(keywords: dict[str, object]) -> None:
    assert not ProducerOptions.read(keywords).enable_idempotence
    with pytest.raises(ConfigurationError, match=r"enable\.idempotence=true"):
        ProducerOptions.read({**keywords, "enable_idempotence": True})


def test_the_time_that_was_not_given_makes_room_for_the_one_that_was() -> None:
    short = ProducerOptions.read({"delivery_timeout_ms": 5_000})
    assert (short.delivery_timeout_ms, short.request_timeout_ms) == (5_000, 4_995)
    long = ProducerOptions.read({"request_timeout_ms": 200_000})
    assert (long.delivery_timeout_ms, long.request_timeout_ms) == (200_005, 200_000)


@pytest.mark.parametrize(
    "keywords",
    [
        {"delivery_timeout_ms": 5_000, "request_timeout_ms": 5_000},
        {"delivery_timeout_ms": 5, "linger_ms": 10},
    ],
)
def test_times_that_contradict_each_other_are_refused(keywords: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=r"less than linger\.ms plus"):
        ProducerOptions.read(keywords)


def test_transactions_need_idempotence() -> None:
    assert ProducerOptions.read({"transactional_id": "mine"}).enable_idempotence
    with pytest.raises(ConfigurationError, match=r"transactional\.id needs acks=all, not 1"):
        ProducerOptions.read({"transactional_id": "mine", "acks": 1})
    with pytest.raises(ConfigurationError, match=r"transactional\.id needs enable\.idempotence"):
        ProducerOptions.read({"transactional_id": "mine", "enable_idempotence": False})


@pytest.mark.parametrize(
    ("codec", "level"), [("none", None), ("snappy", None), ("gzip", 1), ("lz4", 2), ("zstd", 3)]
)
def test_the_level_is_that_of_the_codec(codec: str, level: int | None) -> None:
    options = ProducerOptions.read(
        {
            "compression_type": codec,
            "compression_gzip_level": 1,
            "compression_lz4_level": 2,
            "compression_zstd_level": 3,
        }
    )
    assert options.compression_level == level
