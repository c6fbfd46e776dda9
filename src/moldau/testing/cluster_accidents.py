"""What people do to the coordination store by mistake, past the brokers.

A topic's nodes vanish and are put back, a state or the settings of a topic are overwritten with
nonsense and repaired. The promises hold throughout: what was acknowledged is kept by the brokers
and served again (DEL-1). For stories without faults that destroy data: a state that is put back is
the one of before, and a replica that lost its log in between can say so only afterwards.
"""

from __future__ import annotations

from typing import Final

from moldau.cluster import layout
from moldau.coordination.port import Create, SetData
from moldau.coordination.tree import DeleteTree, TreeOperation
from moldau.testing.simulated_operator import OperationFamily, Operator

_NONSENSE: Final = b"{ not JSON"


async def topic_vanishes(operator: Operator) -> None:
    """Its nodes are removed, and put back in one transaction."""
    service = operator.cluster.world.service
    path = layout.topic_path(operator.cluster.partitions[0].topic)
    paths = sorted((path, *service.tree.paths_below(path)))
    nodes = {each: service.find(each) for each in paths}
    if nodes[path] is None or any(node and node.data == _NONSENSE for node in nodes.values()):
        return  # another one is at it
    operator.note(f"{path} vanishes")
    service.write((DeleteTree(path=path),))
    await operator.sleep(operator.random.uniform(0.05, 2.5))
    creation = [Create(path=each, data=node.data) for each, node in nodes.items() if node]
    operator.note(f"{path} is put back")
    service.write((DeleteTree(path=path), *creation))


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
        "a state is damaged": (2, state_is_damaged),
        "settings are damaged": (1, settings_are_damaged),
    },
)
