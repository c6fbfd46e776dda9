"""Settings with names that no broker option has: what to warn with. Rule: values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.config.broker_options import BrokerOptions
from moldau.config.listener_options import PREFIX, is_listener_option
from moldau.config.spelling import suggest
from moldau.config.static import origin_of
from moldau.config.topic_options import TopicOptions
from moldau.config.unserved import find_missing

RETIRED: Mapping[str, str] = {
    "port": "is no longer an option; set listeners=PLAINTEXT://host:port",
    "host.name": "is no longer an option; set listeners=PLAINTEXT://host:port",
    "advertised.host.name": "is no longer an option; set advertised.listeners",
    "advertised.port": "is no longer an option; set advertised.listeners",
    "quota.producer.default": "is no longer an option; set a default client quota",
    "quota.consumer.default": "is no longer an option; set a default client quota",
    "log.message.format.version": "is no longer an option; only record format 2 is stored",
    "log.message.timestamp.difference.max.ms": (
        "is no longer an option; set log.message.timestamp.before.max.ms and .after.max.ms"
    ),
    "log.message.downconversion.enable": (
        "is no longer an option; batches are never converted to older formats"
    ),
    "offsets.commit.required.acks": "is no longer an option; a commit waits for all replicas",
}
"""Names that Kafka once had, and what took their place."""

_NOBODYS = "is for a listener that is not among listeners, and has no effect"


class UnknownOption(NamedTuple):
    """A setting that has no effect; as text, the message that says so."""

    name: str
    origin: str
    advice: str

    def __str__(self) -> str:
        return f"{self.origin}{self.name} {self.advice}"


def find_unknown(settings: Mapping[str, str]) -> list[UnknownOption]:
    """Every setting of a broker whose name nobody declares, in the order of the settings.

    Those that stop the start (`unserved`) are left out: there is more to say of them.
    """
    known = BrokerOptions.declarations()
    strange = [
        (name, _advise(name))
        for name, value in settings.items()
        if name not in known and not is_listener_option(name) and find_missing(name, value) is None
    ]
    strange += [(name, _NOBODYS) for name in settings if _is_of_no_listener(name, settings)]
    return [
        UnknownOption(name=name, origin=origin_of(settings, name), advice=advice)
        for name, advice in strange
    ]


def _is_of_no_listener(name: str, settings: Mapping[str, str]) -> bool:
    """A misspelled listener would go without the security that was meant for it."""
    if "listeners" not in settings or not is_listener_option(name):
        return False
    addresses = settings["listeners"].lower().split(",")
    names = [address.strip().partition("://")[0] for address in addresses]
    return not any(name.lower().startswith(f"{PREFIX}{listener}.") for listener in names)


def _advise(name: str) -> str:
    if name in RETIRED:
        return RETIRED[name]
    topic_option = TopicOptions.find_declaration(name)
    if topic_option is not None and topic_option.broker_default is not None:
        return f"is an option of topics; for all topics set {topic_option.broker_default}"
    hint = suggest(name, BrokerOptions.declarations())
    return f"is not an option of the broker and has no effect{hint}"
