"""Levels of loggers that clients change, and the one that they do not."""

from __future__ import annotations

import logging

import pytest

from moldau.broker.config_resources import change_levels
from moldau.config.alterations import ConfigChange, ConfigOperation
from moldau.errors import InvalidConfigError
from moldau.security.audit import AUDIT_LOGGER


@pytest.mark.parametrize(
    "change",
    [
        ConfigChange(name=AUDIT_LOGGER, value="FATAL"),
        ConfigChange(name=AUDIT_LOGGER, value=None, operation=ConfigOperation.DELETE),
    ],
)
def test_nobody_silences_the_audit_log(change: ConfigChange) -> None:
    """It would not even tell who did."""
    before = logging.getLogger(AUDIT_LOGGER).level
    with pytest.raises(InvalidConfigError, match=AUDIT_LOGGER):
        change_levels([change], validate_only=False)
    assert logging.getLogger(AUDIT_LOGGER).level == before
