"""The levels of this process's loggers, in Kafka's words (KIP-412).

They are settings of the resource BROKER_LOGGER: every logger and every package of loggers has a
level, its own or that of the nearest one above it, and `root` is above them all. What is set lasts
as long as the process. A shell around `logging`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from moldau.config.alterations import ConfigChange, ConfigOperation
from moldau.errors import InvalidConfigError, InvalidRequestError
from moldau.security.audit import AUDIT_LOGGER

ROOT: Final = "root"

_TRACE: Final = 5
"""Below DEBUG; Python has no name for it."""

_LEVELS: Final = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def list_levels() -> dict[str, str]:
    """The level that is in force for each logger, by its name."""
    names = sorted(logging.root.manager.loggerDict)
    return {ROOT: _level_of(logging.root), **{name: _level_of(_find(name)) for name in names}}


def change_levels(changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """All of the changes, or none of them."""
    _check(changes)
    if validate_only:
        return
    for change in changes:
        logger = logging.root if change.name == ROOT else logging.getLogger(change.name)
        is_set = change.operation is ConfigOperation.SET and change.value is not None
        logger.setLevel(_LEVELS[change.value] if is_set and change.value else logging.NOTSET)


def _check(changes: Iterable[ConfigChange]) -> None:
    for change in changes:
        if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise InvalidRequestError(f"the level of {change.name} is no list")
        if change.name != ROOT and change.name not in logging.root.manager.loggerDict:
            raise InvalidConfigError(f"there is no logger {change.name!r}")
        if change.name == AUDIT_LOGGER:
            raise InvalidConfigError(
                f"the level of {AUDIT_LOGGER} is set where the broker is started, and by no client"
            )
        if change.operation is ConfigOperation.SET:
            if change.value not in _LEVELS:
                levels = ", ".join(_LEVELS)
                raise InvalidConfigError(f"{change.name}={change.value} is none of {levels}")
        elif change.name == ROOT:
            raise InvalidRequestError("the level of root can be changed, not removed")


def _find(name: str) -> logging.Logger:
    """The logger, or for a package that has none the one whose level holds there."""
    while name:
        found = logging.root.manager.loggerDict.get(name)
        if isinstance(found, logging.Logger):
            return found
        name = name.rpartition(".")[0]
    return logging.root


def _level_of(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    reached = [name for name, lowest in _LEVELS.items() if level >= lowest]
    return reached[-1] if reached else "TRACE"
