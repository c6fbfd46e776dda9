"""Who misspells a parameter of a client is told which one was probably meant."""

from __future__ import annotations

import inspect

import pytest

import moldau
from moldau.config.client_options import (
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
    QueueOptions,
)
from moldau.errors import ConfigurationError

CLIENTS: list[tuple[type, type[ClientOptions]]] = [
    (moldau.Consumer, ConsumerOptions),
    (moldau.Producer, ProducerOptions),
    (moldau.Queue, QueueOptions),
]


@pytest.mark.parametrize(("client", "options"), CLIENTS)
def test_the_parameters_are_those_of_the_constructor(
    client: type, options: type[ClientOptions]
) -> None:
    taken = inspect.signature(client).parameters.values()
    named = [one.name for one in taken if one.kind is inspect.Parameter.KEYWORD_ONLY]
    assert list(options.PARAMETERS) == named


@pytest.mark.parametrize(
    ("options", "given", "meant"),
    [
        (ConsumerOptions, "topic", "topics"),
        (ProducerOptions, "value_serialiser", "value_serializer"),
        (QueueOptions, "confirms", "confirm"),
        (ProducerOptions, "linger", "linger_ms"),
    ],
)
def test_what_was_meant_is_named(options: type[ClientOptions], given: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"; did you mean {meant}\\?"):
        options.read({given: "x"})
