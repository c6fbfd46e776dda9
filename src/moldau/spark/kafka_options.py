"""Kafka's own options, given to the source with `kafka.` before their names.

What Moldau's client knows is taken, what would mislead is refused, and what has no effect is said
in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from moldau.config.client_consumer_options import ConsumerOptions
from moldau.errors import ConfigurationError

_log = logging.getLogger(__name__)

KAFKA_PREFIX: Final = "kafka."
_CLIENT_ID: Final = "moldau-spark"

_REFUSED: Final[Mapping[str, str]] = {
    "auto.offset.reset": "has no effect on a query; set startingOffsets",
    "key.deserializer": "is not taken: keys come as binary; cast or decode the column",
    "value.deserializer": "is not taken: values come as binary; cast or decode the column",
    "enable.auto.commit": "is not taken: with groupId a query commits what it has completed",
    "interceptor.classes": "is not taken: there is no Java in the client",
}
"""What Spark's own source refuses, too, and for much the same reasons."""


def read_client_options(given: Mapping[str, str]) -> ConsumerOptions:
    """From options with the prefix; raises ConfigurationError."""
    known = ConsumerOptions.declarations()
    taken: dict[str, object] = {"client.id": _CLIENT_ID}
    for full_name, text in given.items():
        name = full_name.removeprefix(KAFKA_PREFIX)
        if name in _REFUSED:
            raise ConfigurationError(f"{full_name} {_REFUSED[name]}")
        if name in known:
            taken[name] = text
        else:
            _log.warning("%s is not known to Moldau's client and has no effect", full_name)
    return ConsumerOptions.read(taken)
