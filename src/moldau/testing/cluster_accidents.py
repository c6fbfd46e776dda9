"""What people do to the coordination store by mistake, past the brokers.

A topic's nodes vanish and are put back, or all nodes do; a broker's registration vanishes; a state,
the settings or the assignment of a topic are overwritten with nonsense and repaired; all sessions
end at once. The promises hold throughout: what was acknowledged is kept by the brokers and served
again (DEL-1). For stories without faults that destroy data: a state that is put back is the one of
before, and a replica that lost its log in between can say so only afterwards.

A topic of transactions and share groups is missing or unreadable for so long that brokers which
wait for it have given up, if there is anything that gives up (`ABSENCES`).
"""

from __future__ import annotations

from typing import Final

from moldau.cluster import layout
from moldau.coordination.port import Create, SetData
from moldau.coordination.tree import ROOT, DeleteTree, TreeOperation
from moldau.model import BrokerId
from moldau.testing.cluster_shares import JOBS
from moldau.testing.cluster_transactions import SINKS
from moldau.testing.simulated_operator import OperationFamily, Operator

_NONSENSE: Final = b"{ not JSON"
_SHORT_SECONDS: Final = (0.05, 2.5)
_LONG_SECONDS: Final = (11.0, 17.0)
"""Transaction markers wait 10 s before they ask whether a missing topic was deleted."""


async def topic_vanishes(operator: Operator) -> None:
    await _remove(operator, layout.topic_path(operator.cluster.partitions[0].topic))


async def everything_vanishes(operator: Operator) -> None:
    """Under living sessions; registrations and the controller's node are not put back."""
    service = operator.cluster.world.service
    if layout.TOPICS in service.tree.paths_below(ROOT):
        await _remove(operator, *(f"/{name}" for name in service.tree.children(ROOT)))


async def topic_is_missing(operator: Operator) -> None:
    await vanish(operator, _choose_topic(operator), seconds=_LONG_SECONDS)


async def vanish(operator: Operator, topic: str, *, seconds: tuple[float, float]) -> None:
    await _remove(operator, layout.topic_path(topic), seconds=seconds)


def _choose_topic(operator: Operator) -> str:
    """A topic of producers, transactions or share groups; it may not be there now. A topic that is
    deleted and made again is not among them: its former life is not put back."""
    names = {operator.cluster.partitions[0].topic, SINKS[0].topic, JOBS.topic}
    known = {each.topic for each in operator.cluster.observer.replicas} & names
    return operator.random.choice(sorted(known or names))


async def _remove(
    operator: Operator, *roots: str, seconds: tuple[float, float] = _SHORT_SECONDS
) -> None:
    """Nodes with all below them, to put them back in one transaction."""
    service = operator.cluster.world.service
    paths = sorted({each for root in roots for each in (root, *service.tree.paths_below(root))})
    nodes = {each: service.find(each) for each in paths}
    if None in nodes.values() or any(n and n.data == _NONSENSE for n in nodes.values()):
        return  # another one is at it
    removal = [DeleteTree(path=root) for root in roots]
    operator.note(f"{roots} vanish")
    service.write(removal)
    await operator.sleep(operator.random.uniform(*seconds))
    lasting = {each: node for each, node in nodes.items() if node and not node.ephemeral_owner}
    operator.note(f"{roots} are put back")
    service.write((*removal, *(Create(path=each, data=n.data) for each, n in lasting.items())))


async def registration_vanishes(operator: Operator) -> None:
    service = operator.cluster.world.service
    path = layout.broker_path(BrokerId(operator.random.choice(operator.cluster.broker_ids)))
    if service.find(path) is not None:
        operator.note(f"{path} vanishes")
        service.write((DeleteTree(path=path),))


async def state_is_damaged(operator: Operator) -> None:
    partition = operator.random.choice(operator.cluster.partitions)
    await _damage(operator, layout.partition_state_path(*partition))
    _have_topic_read(operator, partition.topic)


async def settings_are_damaged(operator: Operator) -> None:
    partition = operator.random.choice(operator.cluster.partitions)
    await _damage(operator, layout.topic_config_path(partition.topic))


async def topic_is_unreadable(operator: Operator) -> None:
    topic = _choose_topic(operator)
    await _damage(operator, layout.topic_path(topic), seconds=_LONG_SECONDS)
    _have_topic_read(operator, topic)


def _have_topic_read(operator: Operator, topic: str) -> None:
    """Brokers read the nodes of a topic when they hear of a change."""
    told = layout.encode_isr_change([(topic, layout.WHOLE_TOPIC)])
    change = Create(path=layout.ISR_CHANGE_PREFIX, data=told, sequential=True)
    operator.cluster.world.service.write((change,))


async def all_sessions_end(operator: Operator) -> None:
    """Before their time, and each client is told at once. A client that could not be told keeps its
    session: only the time-out, which the lease knows, ends it."""
    world = operator.cluster.world
    for machine in operator.cluster.machines.values():
        is_held = machine.process is None or machine.process.is_paused
        is_cut = world.network.is_cut(world.service.host, machine.host)
        if not (is_held or is_cut) and world.service.can_tell(machine.host):
            operator.note(f"the session of {machine.host} ends")
            world.service.expire_sessions_of(machine.host)


async def _damage(
    operator: Operator, path: str, *, seconds: tuple[float, float] = _SHORT_SECONDS
) -> None:
    service = operator.cluster.world.service
    node = service.find(path)
    if node is None or node.data == _NONSENSE:
        return
    operator.note(f"{path} is damaged")
    service.write((SetData(path=path, data=_NONSENSE),))
    await operator.sleep(operator.random.uniform(*seconds))
    now = service.find(path)
    if now is not None and now.data == _NONSENSE:
        operator.note(f"{path} is repaired")
        repair: TreeOperation = SetData(path=path, data=node.data)
        service.write((repair,))


ACCIDENTS: Final = OperationFamily(
    name="accidents",
    share=1.0,
    fewest=1,
    most=3,
    kinds={
        "a topic vanishes": (3, topic_vanishes),
        "a registration vanishes": (1, registration_vanishes),
        "a state is damaged": (2, state_is_damaged),
        "settings are damaged": (1, settings_are_damaged),
    },
)
REMOVALS: Final = OperationFamily(
    name="removals",
    share=1.0,
    fewest=1,
    most=3,
    kinds={
        "everything vanishes": (2, everything_vanishes),
        "a registration vanishes": (1, registration_vanishes),
    },
)
"""For stories in which no broker is started: it refuses a store that is empty."""

ABSENCES: Final = OperationFamily(
    name="absences",
    share=1.0,
    fewest=1,
    most=3,
    kinds={
        "a topic is missing for long": (4, topic_is_missing),
        "a topic is unreadable for long": (1, topic_is_unreadable),
        "all sessions end": (3, all_sessions_end),
        "a state is damaged": (1, state_is_damaged),
    },
)
"""For stories with transactions and share groups."""
