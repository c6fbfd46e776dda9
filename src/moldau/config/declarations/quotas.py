"""Quotas: how rates are measured. The quotas themselves belong to users and clients."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import CLASS
from moldau.config.option import Importance, OptionSet, optional

_WINDOW_NUMBER = "How many samples of rates are kept in memory for {}."
_WINDOW_SIZE = "How many seconds one sample of rates covers for {}."


class QuotaOptions(OptionSet, ignored=ignored.QUOTAS):
    """The windows over which rates are measured."""

    client_quota_callback_class = optional(
        "client.quota.callback.class",
        CLASS,
        "A Java class that decides on quotas. Moldau cannot load it, so a value stops the start.",
        importance=Importance.LOW,
    )
