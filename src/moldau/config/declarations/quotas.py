"""Quotas and measurement. The quotas themselves belong to users and clients, not to the broker."""

from __future__ import annotations

from moldau.config.kinds import CLASS, INT, LIST, LONG, STRING, at_least, one_of
from moldau.config.option import Importance, OptionSet, Reload, option, optional

_WINDOW_NUMBER = "How many samples of rates are kept in memory for {}."
_WINDOW_SIZE = "How many seconds one sample of rates covers for {}."


class QuotaOptions(OptionSet):
    """The windows over which rates are measured."""

    quota_window_num = option(
        "quota.window.num",
        INT,
        11,
        _WINDOW_NUMBER.format("client quotas"),
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    quota_window_size_seconds = option(
        "quota.window.size.seconds",
        INT,
        1,
        _WINDOW_SIZE.format("client quotas"),
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    replication_quota_window_num = option(
        "replication.quota.window.num",
        INT,
        11,
        _WINDOW_NUMBER.format("replication quotas"),
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    replication_quota_window_size_seconds = option(
        "replication.quota.window.size.seconds",
        INT,
        1,
        _WINDOW_SIZE.format("replication quotas"),
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    alter_log_dirs_replication_quota_window_num = option(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        11,
        _WINDOW_NUMBER.format("moves between data directories"),
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    alter_log_dirs_replication_quota_window_size_seconds = option(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        1,
        _WINDOW_SIZE.format("moves between data directories"),
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    controller_quota_window_num = option(
        "controller.quota.window.num",
        INT,
        11,
        _WINDOW_NUMBER.format("quotas on the creation and deletion of topics"),
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    controller_quota_window_size_seconds = option(
        "controller.quota.window.size.seconds",
        INT,
        1,
        _WINDOW_SIZE.format("quotas on the creation and deletion of topics"),
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    client_quota_callback_class = optional(
        "client.quota.callback.class",
        CLASS,
        "A Java class that decides on quotas. Moldau cannot load it, so a value stops the start.",
        importance=Importance.LOW,
    )


class MetricOptions(OptionSet):
    """Kafka's settings of its own metrics."""

    metric_reporters = option(
        "metric.reporters",
        LIST,
        (),
        "Java classes that report metrics.",
        reload=Reload.CLUSTER_WIDE,
        importance=Importance.LOW,
        ignored=True,
    )
    metrics_num_samples = option(
        "metrics.num.samples",
        INT,
        2,
        "How many samples a metric keeps.",
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    metrics_sample_window_ms = option(
        "metrics.sample.window.ms",
        LONG,
        30_000,
        "How long a sample of a metric is.",
        at_least(1),
        importance=Importance.LOW,
        ignored=True,
    )
    metrics_recording_level = option(
        "metrics.recording.level",
        STRING,
        "INFO",
        "How much is measured.",
        one_of("INFO", "DEBUG", "TRACE"),
        importance=Importance.LOW,
        ignored=True,
    )
