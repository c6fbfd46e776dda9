"""The pages, by noun. A page shows rows that rules made of what the data service asked."""

from __future__ import annotations

from moldau.console.pages import access, cluster, groups, topic_messages, topics, transactions

ALL_PAGES = (
    cluster.register_overview,
    cluster.register_brokers,
    topics.register_topics,
    topic_messages.register,
    topics.register_partitions,
    topics.register_activity,
    topics.register_settings,
    topics.register_produce,
    groups.register_groups,
    groups.register_group,
    transactions.register,
    cluster.register_pipelines,
    access.register,
)
