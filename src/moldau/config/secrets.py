"""Secrets that stand elsewhere than in a properties file (KIP-297's spelling).

`${env:NAME}` is a variable of the environment, `${file:/path}` the content of a file, and
`${file:/path:key}` a line of a properties file; so passwords are in no command line and in no file
that many can read.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from moldau.config.properties import parse_properties
from moldau.config.static import Static
from moldau.errors import ConfigurationError

_REFERENCE = r"\$\{(?P<provider>env|file):(?P<path>[^}:]+)(?::(?P<key>[^}]+))?\}"


def expand_secrets(settings: Static) -> Static:
    """The settings with what their references stand for. Raises ConfigurationError."""
    return settings.mapped(lambda name, text: expand_secret(settings.origin(name) + name, text))


def expand_secret(name: str, text: str) -> str:
    """The same for one setting, which stands in no file of properties."""
    return re.sub(_REFERENCE, lambda found: _look_up(name, found), text) if "${" in text else text


def _look_up(name: str, found: re.Match[str]) -> str:
    path = found["path"]
    if found["provider"] == "env":
        if path not in os.environ:
            raise ConfigurationError(f"{name}: the environment has no variable {path}")
        return os.environ[path]
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise ConfigurationError(f"{name}: {path} cannot be read: {error.strerror}") from None
    if found["key"] is None:
        return text.strip()
    lines = {line.name: line.value for line in parse_properties(text)}
    if found["key"] not in lines:
        raise ConfigurationError(f"{name}: {path} has no {found['key']}")
    return lines[found["key"]]
