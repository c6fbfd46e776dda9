"""Which proposals of in-sync sets may be written, and which of those that failed are surely void.

A proposal is made over the state that the leader knows. Between that and the write others may have
written, and brokers may have been restarted. A rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.model import BrokerId


def joining_brokers(planned: PlannedState) -> tuple[BrokerId, ...]:
    """Those that a proposal takes in."""
    return tuple(broker for broker in planned.state.isr if broker not in planned.former.isr)


def takes_in_restarted(
    planned: PlannedState,
    registered_epochs: Mapping[BrokerId, int],
    epoch_at_fetch: Callable[[BrokerId], int],
) -> bool:
    """Whether a proposal would take in a broker which was restarted since it fetched (ISR-2).

    The image may not know of that yet. A broker that comes back with a hole writes every state
    before it registers; so either our write is overtaken by that, or its state is the one we write
    over, and then its former registration cannot be read any more.
    """
    return any(
        registered_epochs.get(broker, -1) != epoch_at_fetch(broker)
        for broker in joining_brokers(planned)
    )


def is_surely_void(planned: PlannedState, image: MetadataImage) -> bool:
    """Whether a proposal that was overtaken is not in force: the store still has what it was over.

    A newer state may be the proposal itself, of which no answer came, or what another has written
    over it since. So it is left pending, and decided when that state is applied.
    """
    topic = image.topics.get(planned.topic.name)
    if topic is None or topic.topic_id != planned.topic.topic_id:
        return False  # the partition goes, too
    state = topic.find_partition(planned.partition)
    return state is not None and state.version == planned.former.version
