"""Which topic names are legal, and which of them collide in metrics (Kafka's `Topic` class)."""

from __future__ import annotations

import re

MAX_NAME_LENGTH = 249
"""A folder is named `topic-partition` plus, while deleted, a 39-character suffix: 255 in all."""

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The log of Kafka's own controllers, in a folder that came from there: no topic, and not ours."""
INTERNAL_TOPICS = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

BRANCH_OF = "moldau.branch.of"
"""What stands among the configs of a topic to be made: the topic whose records it begins with."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+\Z")


def find_name_fault(name: str) -> str | None:
    """Say what is wrong with a topic name, or None when it is legal."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return "the topic name must not be '.' or '..'"
    if len(name) > MAX_NAME_LENGTH:
        return f"the topic name has {len(name)} characters, at most {MAX_NAME_LENGTH} are allowed"
    if not _LEGAL.match(name):
        return (
            f"the topic name {name!r} contains a character other than ASCII letters and digits, "
            "'.', '_' and '-'"
        )
    return None


def find_colliding_name(name: str, others: frozenset[str]) -> str | None:
    """Find a topic whose name differs only in '.' against '_' (they share a metric name)."""
    flat = name.replace(".", "_")
    if flat == name and "_" not in name:
        return None
    return next((other for other in others if other.replace(".", "_") == flat), None)
