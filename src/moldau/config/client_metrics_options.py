"""The options of one subscription to clients' own metrics (KIP-714), which `kafka-client-metrics`
or `kafka-configs --entity-type client-metrics` sets. Rule: values in, values out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from moldau.config.option import INT, LIST, OptionSet, Reload, Rule, between, option

MATCHED = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What of a client a pattern can look at."""


def _find_match_fault(items: tuple[str, ...]) -> str | None:
    for item in items:
        name, equals, pattern = item.partition("=")
        if not equals or name.strip() not in MATCHED:
            return f"has the entry {item!r}, which does not begin with one of {', '.join(MATCHED)}"
        try:
            re.compile(pattern)
        except re.error as error:
            return f"has the entry {item!r}, whose pattern makes no sense: {error}"
    return None


_PATTERNS: Rule[tuple[str, ...]] = Rule("a list of name=pattern", _find_match_fault)


class ClientMetricsOptions(OptionSet, reload=Reload.CLUSTER_WIDE):
    """One subscription. Kafka's words: `ClientMetricsConfigs`."""

    metrics = option(
        "metrics",
        LIST,
        (),
        "Which metrics clients are asked for, by the beginnings of their names; * for all.",
    )
    interval_ms = option(
        "interval.ms",
        INT,
        300_000,
        "How often they push them.",
        between(100, 3_600_000),
    )
    match = option(
        "match",
        LIST,
        (),
        "Which clients: name=pattern, all of which have to fit. The names are "
        f"{', '.join(MATCHED)}; without any, all clients are meant.",
        _PATTERNS,
    )

    @classmethod
    def check_all(cls, settings: Mapping[str, str]) -> None:
        """Raise InvalidConfigError unless a subscription can have exactly these settings."""
        cls.check_settings(settings, "client metrics")

    @classmethod
    def find_list_default(cls, name: str) -> str | None:
        """The default of a list, for appending to it; None for what is no list."""
        declared = cls.find_declaration(name)
        is_list = declared is not None and declared.kind.type is LIST.type
        return "" if is_list else None
