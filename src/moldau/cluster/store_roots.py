"""The nodes below which a cluster keeps everything in a store that it may share with others."""

from __future__ import annotations

from typing import Final

from moldau.cluster import layout
from moldau.cluster.acl_nodes import ACL_PATHS
from moldau.cluster.delegation_tokens import TOKENS

_PATHS: Final = (
    *layout.PERSISTENT_PATHS,
    *ACL_PATHS,
    layout.CLUSTER_ID,
    layout.CONTROLLER,
    layout.CONTROLLER_EPOCH,
    layout.PRODUCER_ID_BLOCK,
    TOKENS,
    "/feature",  # of a former Kafka
)

STORE_ROOTS: Final = tuple(sorted({f"/{path.split('/')[1]}" for path in _PATHS}))
