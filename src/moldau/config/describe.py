"""What DescribeConfigs answers, what AlterConfigs accepts, and which settings have no effect.

DescribeConfigs answers with every option, its value, where that came from, and the chain of
settings behind it, strongest first. Kafka leaves a value empty where only a coarser synonym is set
(`log.retention.ms` beside `log.retention.hours`); here it has the value that applies, and the
synonym is in the chain. Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from moldau.config.broker_options import BrokerOptions, find_missing_support
from moldau.config.client_metrics_options import ClientMetricsOptions
from moldau.config.group_options import GroupConfigOptions
from moldau.config.listener_options import PREFIX, is_listener_option
from moldau.config.option import (
    AnyOption,
    OptionSource,
    OptionType,
    Reload,
    settings_of,
    suggest,
    to_text,
)
from moldau.config.properties import origin_of
from moldau.config.topic_options import TopicOptions
from moldau.errors import ConfigurationError, InvalidConfigError

# What DescribeConfigs answers: every option with its value, where that came from, and the chain
# of settings behind it, strongest first.
#
# Kafka leaves a value empty where only a coarser synonym is set (`log.retention.ms` beside
# `log.retention.hours`); here it has the value that counts, and the synonym is in the chain.
# Rule: values in, values out.


class OptionSynonym(NamedTuple):
    """One link of the chain: a setting, or the default at its end."""

    name: str
    value: str | None
    source: OptionSource


class DescribedOption(NamedTuple):
    """One option as DescribeConfigs shows it. The value of a sensitive one is never told."""

    name: str
    value: str | None
    is_default: bool
    source: OptionSource
    read_only: bool
    sensitive: bool
    type: OptionType
    documentation: str
    synonyms: tuple[OptionSynonym, ...]


def describe_topic(overrides: Mapping[str, str], broker: BrokerOptions) -> list[DescribedOption]:
    """Every option of a topic, by name."""
    return [
        _describe_override(
            declared, overrides.get(declared.name), OptionSource.TOPIC_CONFIG, broker
        )
        for declared in sorted(TopicOptions.declarations().values(), key=_by_name)
        if not declared.is_internal
    ]


def describe_group_configs(
    overrides: Mapping[str, str], broker: BrokerOptions
) -> list[DescribedOption]:
    """Every option that a group can have of its own, by name."""
    return [
        _describe_override(
            declared, overrides.get(declared.name), OptionSource.GROUP_CONFIG, broker
        )
        for declared in sorted(GroupConfigOptions.declarations().values(), key=_by_name)
    ]


def describe_client_metrics(
    settings: Mapping[str, str], broker: BrokerOptions
) -> list[DescribedOption]:
    """Every option of a subscription to clients' metrics, by name."""
    return [
        _describe_override(
            declared, settings.get(declared.name), OptionSource.CLIENT_METRICS_CONFIG, broker
        )
        for declared in sorted(ClientMetricsOptions.declarations().values(), key=_by_name)
    ]


def describe_broker(broker: BrokerOptions) -> list[DescribedOption]:
    """Every option of a broker, by name; then what was set and nobody declares."""
    described = []
    for declared in sorted(broker.declarations().values(), key=_by_name):
        chain = _broker_chain(declared, broker)
        text = _winning_text(declared, chain, broker)
        described.append(_described(declared, text, chain))
    strange: dict[str, OptionSource] = {}
    for source, settings in broker.layers.levels():
        if source is not OptionSource.STATIC_BROKER:
            unknown = (name for name in sorted(settings) if name not in broker.declarations())
            strange = dict.fromkeys(unknown, source) | strange
    return [*described, *(_described_unknown(name, source) for name, source in strange.items())]


def describe_broker_defaults(default_dynamic: Mapping[str, str]) -> list[DescribedOption]:
    """The dynamic configs of all brokers: only those that are set, as Kafka does."""
    described = []
    for name, text in sorted(default_dynamic.items()):
        declared = BrokerOptions.find_declaration(name)
        if declared is None:
            described.append(_described_unknown(name, OptionSource.DYNAMIC_DEFAULT_BROKER))
        else:
            tidy = declared.kind.tidy(text)
            link = OptionSynonym(name=name, value=tidy, source=OptionSource.DYNAMIC_DEFAULT_BROKER)
            described.append(_described(declared, tidy, (link,)))
    return described


def _by_name(declared: AnyOption) -> str:
    return declared.name


def _describe_override(
    declared: AnyOption, override: str | None, source: OptionSource, broker: BrokerOptions
) -> DescribedOption:
    """An option of a topic or a group, which the broker speaks for when it is not set there."""
    chain: tuple[OptionSynonym, ...] = ()
    text = declared.default_text
    if declared.broker_default is not None:
        broker_option = broker.declarations()[declared.broker_default]
        chain = _broker_chain(broker_option, broker)
        text = _winning_text(broker_option, chain, broker)
    if override is not None:
        text = declared.kind.tidy(override)
        link = OptionSynonym(name=declared.name, value=text, source=source)
        chain = (link, *chain)
    return _described(declared, text, chain)


def _broker_chain(declared: AnyOption, broker: BrokerOptions) -> tuple[OptionSynonym, ...]:
    """The settings of a broker option, the one that wins first, and its default last."""
    options = broker.declarations()
    given = tuple(
        OptionSynonym(name=s.name, value=options[s.name].kind.tidy(s.text), source=s.source)
        for s in settings_of(declared, broker.layers)
    )
    return given + _default_link(declared, options)


def _default_link(
    declared: AnyOption, options: Mapping[str, AnyOption]
) -> tuple[OptionSynonym, ...]:
    candidates = (declared, *(options[fallback.name] for fallback in declared.falls_back_to))
    for candidate in candidates:
        if candidate.default_text is not None:
            text = candidate.default_text
            return (OptionSynonym(name=candidate.name, value=text, source=OptionSource.DEFAULT),)
    return ()


def _winning_text(
    declared: AnyOption, chain: tuple[OptionSynonym, ...], broker: BrokerOptions
) -> str | None:
    """The text that counts: as given, but in the option's own unit when a synonym gave it."""
    if not chain:
        return None
    if chain[0].name == declared.name:
        return chain[0].value
    return to_text(broker.value_of(declared.name))


def _described(
    declared: AnyOption, text: str | None, chain: tuple[OptionSynonym, ...]
) -> DescribedOption:
    source = chain[0].source if chain else OptionSource.DEFAULT
    if declared.is_sensitive:
        text = None
        chain = tuple(OptionSynonym(name=s.name, value=None, source=s.source) for s in chain)
    return DescribedOption(
        name=declared.name,
        value=text,
        is_default=source is OptionSource.DEFAULT,
        source=source,
        read_only=declared.reload is Reload.READ_ONLY,
        sensitive=declared.is_sensitive,
        type=declared.kind.type,
        documentation=declared.documentation,
        synonyms=chain,
    )


def _described_unknown(name: str, source: OptionSource) -> DescribedOption:
    """A setting that nobody declares may be a password: its value is not told, as in Kafka."""
    return DescribedOption(
        name=name,
        value=None,
        is_default=False,
        source=source,
        read_only=False,
        sensitive=True,
        type=OptionType.UNKNOWN,
        documentation="",
        synonyms=(OptionSynonym(name=name, value=None, source=source),),
    )


# Changes of dynamic configs (AlterConfigs). Settings are checked as a whole, so a change that is
# refused changes nothing. They are stored and applied in `cluster`.


def check_broker_settings(settings: Mapping[str, str], broker: BrokerOptions) -> None:
    """Raise InvalidConfigError unless this broker can have exactly these dynamic settings."""
    for name, value in settings.items():
        BrokerOptions.check(name, value)
    _check_together(broker, settings, broker.layers.default_dynamic)


def check_default_broker_settings(settings: Mapping[str, str], broker: BrokerOptions) -> None:
    """Raise InvalidConfigError unless all brokers can have these; tried out on this one."""
    for name, value in settings.items():
        BrokerOptions.check(name, value, cluster_wide=True)
    _check_together(broker, broker.layers.dynamic, settings)


def find_list(name: str, described: Iterable[DescribedOption]) -> str | None:
    """The value of a list, for appending to it; None for what is no list."""
    found = (one for one in described if one.name == name and one.type is OptionType.LIST)
    return next((one.value or "" for one in found), None)


def _check_together(
    broker: BrokerOptions, dynamic: Mapping[str, str], default_dynamic: Mapping[str, str]
) -> None:
    try:
        BrokerOptions.resolve(broker.layers.static, dynamic, default_dynamic)
    except ConfigurationError as fault:
        raise InvalidConfigError(str(fault)) from None


# Settings with names that no broker option has.


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

    Those that stop the start are left out: their messages say more.
    """
    known = BrokerOptions.declarations()
    strange = [
        (name, _advise(name))
        for name, value in settings.items()
        if name not in known
        and not is_listener_option(name)
        and find_missing_support(name, value) is None
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
