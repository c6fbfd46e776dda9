"""The pages, one file each. A page shows rows that rules made of what the data service asked."""

from __future__ import annotations

from moldau.console.pages import (
    access,
    brokers,
    group,
    groups,
    overview,
    pipelines,
    topic_activity,
    topic_messages,
    topic_partitions,
    topic_produce,
    topic_settings,
    topics,
    transactions,
)

ALL_PAGES = (
    overview,
    brokers,
    topics,
    topic_messages,
    topic_partitions,
    topic_activity,
    topic_settings,
    topic_produce,
    groups,
    group,
    transactions,
    pipelines,
    access,
)
