"""Who may do what with a node: ZooKeeper's access lists, as Kafka sets them. A rule.

Without `zookeeper.set.acl` everybody may do everything. With it only the credential that made a
node may write it; everybody may read it, except where passwords and the like are kept.
"""

from __future__ import annotations

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

_SECRET = ("/config/users", "/config/brokers", "/delegation_token")

AccessList = list[object]


def access_list(path: str, *, is_protected: bool) -> AccessList:
    """Of a node to be made at `path`, which is one of the cluster's own, without the root."""
    if not is_protected:
        return list(OPEN_ACL_UNSAFE)
    if path.startswith(_SECRET):
        return list(CREATOR_ALL_ACL)
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]
