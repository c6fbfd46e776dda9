"""Which brokers an embedded store has replicas of: who has to run for its topics to be whole.

Reads the store's nodes; a topic whose node is damaged is left to those who serve it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.broker.broker_places import refuse_left_out
from moldau.cluster import layout
from moldau.coordination.embedded import EmbeddedStore
from moldau.errors import MoldauError, StartupError


def find_replicas(store: EmbeddedStore) -> Mapping[int, Sequence[str]]:
    """The topics of each broker that has any."""
    found: dict[int, set[str]] = {}
    for topic in store.children(layout.TOPICS):
        entry = store.find(layout.topic_path(topic))
        if entry is None:
            continue
        try:
            assignment = layout.decode_topic(topic, entry.node.data)
        except (MoldauError, ValueError):
            continue
        for replicas in assignment.replicas:
            for broker_id in replicas:
                found.setdefault(broker_id, set()).add(topic)
    return {broker_id: sorted(topics) for broker_id, topics in found.items()}


def refuse_several_brokers(store: EmbeddedStore) -> None:
    """A broker alone must not serve a part of what several had: the rest would look lost."""
    replicas = find_replicas(store)
    if len(replicas) > 1:
        refusal = refuse_left_out(replicas, {min(replicas)})
        raise StartupError(f"this data folder is one of several brokers: {refusal}")
