"""What people do to the coordination store by mistake, past the brokers.

A topic's nodes vanish and are put back, or all nodes do; a broker's registration vanishes; a state
or the settings of a topic are overwritten with nonsense and repaired. The promises hold throughout:
what was acknowledged is kept by the brokers and served again (DEL-1). For stories without faults
that destroy data: a state that is put back is the one of before, and a replica that lost its log in
between can say so only afterwards.
"""

from __future__ import annotations

from typing import Final

from moldau.cluster import layout
from moldau.coordination.port import Create, SetData
from moldau.coordination.tree import ROOT, DeleteTree, TreeOperation
from moldau.model import BrokerId
from moldau.testing.simulated_operator import OperationFamily, Operator

_NONSENSE: Final = b"{ not JSON"


async def topic_vanishes(operator: Operator) -> None:
    await _remove(operator, layout.topic_path(operator.cluster.partitions[0].topic))


async def everything_vanishes(operator: Operator) -> None:
    """Under living sessions; registrations and the controller's node are not put back."""
    service = operator.cluster.world.service
    if layout.TOPICS in service.tree.paths_below(ROOT):
        await _remove(operator, *(f"/{name}" for name in service.tree.children(ROOT)))


async def _remove(operator: Operator, *roots: str) -> None:
    """Nodes with all below them, to put them back in one transaction."""
    service = operator.cluster.world.service
    paths = sorted({each for root in roots for each in (root, *service.tree.paths_below(root))})
    nodes = {each: service.find(each) for each in paths}
    if None in nodes.values() or any(n and n.data == _NONSENSE for n in nodes.values()):
        return  # another one is at it
    removal = [DeleteTree(path=root) for root in roots]
    operator.note(f"{roots} vanish")
    service.write(removal)
    await operator.sleep(operator.random.uniform(0.05, 2.5))
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
    told = layout.encode_isr_change([(partition.topic, layout.WHOLE_TOPIC)])
    operator.cluster.world.service.write(
        (Create(path=layout.ISR_CHANGE_PREFIX, data=told, sequential=True),)
    )


async def settings_are_damaged(operator: Operator) -> None:
    partition = operator.random.choice(operator.cluster.partitions)
    await _damage(operator, layout.topic_config_path(partition.topic))


async def _damage(operator: Operator, path: str) -> None:
    service = operator.cluster.world.service
    node = service.find(path)
    if node is None or node.data == _NONSENSE:
        return
    operator.note(f"{path} is damaged")
    service.write((SetData(path=path, data=_NONSENSE),))
    await operator.sleep(operator.random.uniform(0.05, 2.5))
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
