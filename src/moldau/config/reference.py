"""Renders `docs/configuration.md` from the declarations.

`python -m moldau.config.reference` prints the page, `… reference docs/configuration.md` writes it.
A test fails while the committed page differs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from moldau.config.broker_options import THEMES, BrokerOptions
from moldau.config.client_metrics_options import ClientMetricsOptions
from moldau.config.client_options import (
    AdminOptions,
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
    QueueOptions,
)
from moldau.config.group_options import GroupConfigOptions
from moldau.config.option import (
    DAY_MS,
    HOUR_MS,
    MAX_DOUBLE,
    MAX_INT,
    MAX_LONG,
    MINUTE_MS,
    SECOND_MS,
    AnyOption,
    Importance,
    OptionSet,
    OptionType,
    Reload,
)
from moldau.config.topic_options import TopicOptions

_INTRODUCTION = """\
# Configuration

This page is generated: change the declarations in `src/moldau/config/`, then run
`python -m moldau.config.reference docs/configuration.md`.

Names, types, defaults and ranges are those of Apache Kafka 4; where a default differs, the option
says so. Values are plain numbers and words, without units. A broker reads them, strongest first,
from

1. the topic's own config, or the group's,
2. the dynamic config of this broker,
3. the dynamic config of all brokers (these three are set with `moldau configs alter` or with any
   Kafka admin client),
4. `--set name=value` on the command line, then the file given with `--config`,
5. the defaults below.

An option that changes *per broker* or *cluster-wide* can be given new values while the broker runs,
for one broker or for all; a *read-only* one needs a restart. Names that are not on this page are
reported at the start and have no effect, unless they ask for protection or for copies that Moldau
cannot give (an authorizer, keystores, SASL, a quorum of controllers, remote storage): those stop
the start and say what to do, as a wrong value does. In each section the options that matter most
come first.
"""

_TYPE_WORDS = {
    OptionType.BOOLEAN: "true or false",
    OptionType.STRING: "text",
    OptionType.INT: "whole number",
    OptionType.SHORT: "whole number",
    OptionType.LONG: "whole number",
    OptionType.DOUBLE: "number",
    OptionType.LIST: "list",
    OptionType.CLASS: "class name",
    OptionType.PASSWORD: "password",
}

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES = ((DAY_MS, "days"), (HOUR_MS, "hours"), (MINUTE_MS, "minutes"), (SECOND_MS, "seconds"))
_UNLIMITED = (MAX_INT, MAX_LONG, MAX_DOUBLE)
_DYNAMIC = Reload.CLUSTER_WIDE

_CODE = re.compile(r"__\w+|\*|NAME://host:port|[a-z]+(?:\.[a-z0-9]+)+")

CLIENTS: tuple[tuple[str, type[ClientOptions]], ...] = (
    ("Producers", ProducerOptions),
    ("Consumers", ConsumerOptions),
    ("Queues", QueueOptions),
    ("Administrators", AdminOptions),
)
"""The sections of the page about clients, in its order."""

_CLIENTS_INTRODUCTION = """\
## Clients

Options of the Python clients are keyword arguments, with underscores for dots:
`moldau.Producer("127.0.0.1:9092", linger_ms=20, compression_type="zstd")`.

How long they wait for a cluster that does not answer: a producer `max.block.ms` for a topic that is
new to it and `delivery.timeout.ms` for each record; a consumer and an administrator
`default.api.timeout.ms`, and not at all where nobody listens when they begin. So
`moldau.Producer("127.0.0.1:9092", max_block_ms=3000)` fails within three seconds where no broker
is. A consumer that has begun waits for as long as it takes. Whatever lasts longer than a second is
told meanwhile, as a warning of the logger `moldau.client.outages`, and so is its end.
"""

_DECLARED: tuple[type[OptionSet], ...] = (
    BrokerOptions,
    TopicOptions,
    GroupConfigOptions,
    ClientMetricsOptions,
    *(options for _, options in CLIENTS),
)
_NAMES = frozenset(name for options in _DECLARED for name in options.declarations())


def render() -> str:
    """The whole page."""
    topics = TopicOptions.declarations().values()
    sections = [_INTRODUCTION, "## Topics\n", *_entries(topics, {_DYNAMIC: "changes at any time"})]
    groups = GroupConfigOptions.declarations().values()
    sections += ["## Groups\n", *_entries(groups, {_DYNAMIC: "changes at any time"})]
    metrics = ClientMetricsOptions.declarations().values()
    sections += ["## Subscriptions to clients' metrics\n"]
    sections += _entries(metrics, {_DYNAMIC: "changes at any time"})
    sections.append("## Brokers\n")
    for title, theme in THEMES:
        sections += [f"### {title}\n", *_entries(theme.declarations().values(), {})]
    sections.append(_CLIENTS_INTRODUCTION)
    for title, client in CLIENTS:
        sections += [f"### {title}\n", *_client_entries(client.declarations().values())]
    return "\n".join(sections)


def _entries(declared: Iterable[AnyOption], words: Mapping[Reload, str]) -> Iterator[str]:
    for one in sorted(declared, key=_place):
        if not one.is_internal:
            changes = words.get(one.reload, one.reload.value)
            yield f"#### `{one.name}`\n\n{_facts(one, changes)}\n\n{_marked(one.documentation)}\n"


def _client_entries(declared: Iterable[AnyOption]) -> Iterator[str]:
    for one in sorted(declared, key=_place):
        facts = _facts(one, f"`{one.attribute}`")
        yield f"#### `{one.name}`\n\n{facts}\n\n{_marked(one.documentation)}\n"


def _place(declared: AnyOption) -> tuple[int, str]:
    return list(Importance).index(declared.importance), declared.name


def _facts(declared: AnyOption, changes: str) -> str:
    facts = [_TYPE_WORDS[declared.kind.type], _default(declared)]
    if declared.rule is not None:
        facts.append(_marked(declared.rule.words))
    facts.append(changes)
    if declared.broker_default is not None:
        facts.append(f"the broker's `{declared.broker_default}`")
    return " · ".join(facts)


def _marked(text: str) -> str:
    """Plain text as Markdown: names set as code, so that neither `__` nor `*` is emphasis."""
    return _CODE.sub(lambda found: _marked_word(found[0]), text)


def _marked_word(word: str) -> str:
    return f"`{word}`" if word in _NAMES or not word[0].islower() else word


def _default(declared: AnyOption) -> str:
    if declared.default is None:
        others = [f"`{fallback.name}`" for fallback in declared.falls_back_to]
        return f"default from {', then '.join(others)}" if others else "no default"
    text = declared.default_text
    return f"default `{text}`{_spoken(declared.name, declared.default)}" if text else "default none"


def _spoken(name: str, value: object) -> str:
    """A large number in words that a person can take in."""
    if value in _UNLIMITED:
        return " (no limit)"
    if not isinstance(value, int):
        return ""
    units: Sequence[tuple[int, str]] = ()
    if name.endswith(".ms"):
        units = _TIMES
    elif name.endswith((".bytes", ".size")):
        units = _SIZES
    for size, word in units:
        if value >= size and value % size == 0:
            count = value // size
            return f" ({count} {word[:-1] if count == 1 and units is _TIMES else word})"
    return ""


def main(arguments: Sequence[str]) -> None:
    """Print the page, or write it to the file that is named."""
    if arguments:
        Path(arguments[0]).write_text(render(), encoding="utf-8")
    else:
        sys.stdout.write(render())


if __name__ == "__main__":
    main(sys.argv[1:])
