"""An option has an effect, or its documentation says that it has none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import moldau
from moldau.config.broker_options import BrokerOptions
from moldau.config.client_options import ConsumerOptions, ProducerOptions
from moldau.config.group_options import GroupConfigOptions
from moldau.config.option import Option, OptionSet
from moldau.config.topic_options import TopicOptions

SOURCES = Path(moldau.__file__).parent


def options_of(owner: type[OptionSet]) -> list[Option[object]]:
    found = [getattr(owner, name) for name in dir(owner)]
    return [one for one in found if isinstance(one, Option)]


def used_attributes() -> set[str]:
    files = [one for one in SOURCES.rglob("*.py") if one.parent.name != "declarations"]
    return {name for one in files for name in re.findall(r"\.(\w+)", one.read_text())}


def named_by_others() -> set[str]:
    """Defaults of topics and groups, what bounds those of groups, and options that others fall back
    to."""
    groups = options_of(GroupConfigOptions)
    every = [*options_of(BrokerOptions), *options_of(TopicOptions), *groups]
    fallbacks = {fallback.name for one in every for fallback in one.falls_back_to}
    bounds = {
        f"group.{kind}.{bound}.{rest}"
        for kind, _, rest in (one.name.partition(".") for one in groups)
        for bound in ("min", "max")
    }
    return fallbacks | bounds | {one.broker_default for one in every if one.broker_default}


@pytest.mark.parametrize("owner", [BrokerOptions, TopicOptions, ConsumerOptions, ProducerOptions])
def test_an_option_is_used_or_said_to_be_ignored(owner: type[OptionSet]) -> None:
    used, named = used_attributes(), named_by_others()
    idle = [
        one.name
        for one in options_of(owner)
        if one.attribute not in used
        and one.name not in named
        and not one.is_ignored
        and "only false is taken" not in one.documentation
        and "stops the start" not in one.documentation
    ]
    assert idle == []
