"""Java's login configuration, as far as it stands in Kafka's properties. Rule.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="broker" password="secret" user_alice="hers";

Only the options count here: the mechanism is known from where the text stands. Values may be
quoted, and a backslash stands before a quote or a backslash inside them. No message repeats any of
the text, which has passwords in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r'\s*(?:"((?:\\.|[^"\\])*)"|([^\s=;"]+)|([=;]))', re.DOTALL)
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_USER_PREFIX = "user_"


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasConfig:
    """One login module with its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def username(self) -> str | None:
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        return self.options.get("password")

    @property
    def users(self) -> dict[str, str]:
        """The passwords of `user_NAME` by name."""
        return {
            name.removeprefix(_USER_PREFIX): text
            for name, text in self.options.items()
            if name.startswith(_USER_PREFIX)
        }


def parse_jaas(text: str) -> JaasConfig:
    """Read one entry; ValueError is the end of a message about the option."""
    tokens = _split(text)
    if len(tokens) < 2 or tokens[-1] != (";", True):
        raise ValueError("does not end with a semicolon")
    (module, _), (flag, _), *rest = tokens[:-1] if len(tokens) > 2 else [("", False)] * 2
    if not module or flag.lower() not in _FLAGS:
        raise ValueError("does not begin with the name of a login module and the word required")
    options: dict[str, str] = {}
    while rest:
        if len(rest) < 3 or rest[1] != ("=", True) or rest[0][1] or rest[2][1]:
            raise ValueError('has an option that is not of the form name="value"')
        options[rest[0][0]] = rest[2][0]
        rest = rest[3:]
    return JaasConfig(module=module, options=options)


def format_jaas(module: str, options: Mapping[str, str]) -> str:
    """The text from which `parse_jaas` reads the same."""
    words = [module, "required", *(f'{name}="{_quote(v)}"' for name, v in options.items())]
    return " ".join(words) + ";"


def _split(text: str) -> list[tuple[str, bool]]:
    """The words, and whether each is a sign (`=` or `;`) rather than a text."""
    tokens: list[tuple[str, bool]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("has a quote that does not end")
        quoted, bare, sign = match.groups()
        if sign:
            tokens.append((sign, True))
        else:
            tokens.append((bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted), False))
        position = match.end()
    return tokens


def _quote(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
