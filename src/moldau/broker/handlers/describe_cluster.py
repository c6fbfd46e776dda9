"""DescribeCluster, versions 0 to 2.

v1 asks brokers or controllers; v2 fenced brokers. Brokers answer for brokers only.
"""

from __future__ import annotations

from kio.schema.describe_cluster.v2 import DescribeClusterRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import NOT_ASKED, cluster_operations
from moldau.broker.topic_metadata import reachable_endpoints
from moldau.errors import ErrorCode
from moldau.wire.apis import DESCRIBE_CLUSTER

API = serves(DESCRIBE_CLUSTER, droppable=("endpoint_type", "is_fenced"))

_BROKERS = 1


def handle(request: DescribeClusterRequest, context: RequestContext) -> Values:
    image = context.services.image
    endpoint_type = getattr(request, "endpoint_type", _BROKERS)
    if endpoint_type != _BROKERS:
        return {
            "error_code": ErrorCode.mismatched_endpoint_type,
            "error_message": "this is a broker, it does not answer for controllers",
            "endpoint_type": _BROKERS,
            "cluster_id": image.cluster_id,
            "brokers": [],
        }
    brokers = context.services.told_brokers
    endpoints = reachable_endpoints(brokers, context.connection.listener_name)
    return {
        **error_values(None),
        "endpoint_type": _BROKERS,
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "cluster_authorized_operations": cluster_operations(context)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
        "brokers": [
            {
                "broker_id": broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": brokers[broker_id].rack,
                "is_fenced": False,
            }
            for broker_id, endpoint in endpoints.items()
        ],
    }
