"""Quotas: how rates are measured. The quotas themselves belong to users and clients."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import CLASS, INT, at_least
from moldau.config.option import Importance, OptionSet, option, optional


class QuotaOptions(OptionSet, ignored=ignored.QUOTAS):
    """How much of a quota may be used at once."""

    quota_window_num = option(
        "quota.window.num",
        INT,
        11,
        "With quota.window.size.seconds: an answer to a fetch carries the quota of all these "
        "windows but one at most, except for its first batch. In Kafka, also the number of samples "
        "that are kept of a rate.",
        at_least(1),
        importance=Importance.LOW,
    )
    quota_window_size_seconds = option(
        "quota.window.size.seconds",
        INT,
        1,
        "How many seconds' worth of a client quota may be used at once by a client that was idle. "
        "In Kafka, how many seconds one sample of rates covers.",
        at_least(1),
        importance=Importance.LOW,
    )
    controller_quota_window_num = option(
        "controller.quota.window.num",
        INT,
        11,
        "With controller.quota.window.size.seconds: how many of these windows' worth of a quota "
        "on the creation and deletion of topics may be used at once.",
        at_least(1),
        importance=Importance.LOW,
    )
    controller_quota_window_size_seconds = option(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "The window of controller.quota.window.num, in seconds.",
        at_least(1),
        importance=Importance.LOW,
    )

    client_quota_callback_class = optional(
        "client.quota.callback.class",
        CLASS,
        "A Java class that decides on quotas. Moldau cannot load it, so a value stops the start.",
        importance=Importance.LOW,
    )
