"""ListConfigResources, versions 0 and 1: what can be described and altered (KIP-1000, KIP-1142).

Version 0, ListClientMetricsResources once, asks for client metrics only; v1 names the types it asks
for, none meaning all. Topics and brokers, each of which has loggers, are those that there are,
groups those for which something is set: others have only what the brokers say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from kio.schema.list_config_resources.v1 import ListConfigResourcesRequest

from moldau.broker.api import RequestContext, Slices, Values, answered_class, encode_array, serves
from moldau.broker.authorization import find_refusal
from moldau.broker.config_resources import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import LIST_CONFIG_RESOURCES

API = serves(
    LIST_CONFIG_RESOURCES, needs=AclOperation.DESCRIBE_CONFIGS, droppable=("resource_type",)
)

_KNOWN: Final = (
    frozenset({CLIENT_METRICS}),
    frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}),
)
"""By version."""

_RESOURCES_AT_ONCE = 500


async def handle(request: ListConfigResourcesRequest, context: RequestContext) -> Values:
    if find_refusal(context, API) is not None:
        return {"error_code": ErrorCode.cluster_authorization_failed, "config_resources": []}
    known = _KNOWN[context.version]
    wanted = frozenset(getattr(request, "resource_types", ())) or known
    if not wanted <= known:
        return {"error_code": ErrorCode.unsupported_version, "config_resources": []}
    resource_class = answered_class(API, context.version, "config_resources")
    services = context.services
    rows = _list(wanted, services.image, services.telemetry.configs.settings)
    slices = Slices(_RESOURCES_AT_ONCE)
    return {
        "error_code": ErrorCode.none,
        "config_resources": await encode_array(resource_class, rows, API, slices),
    }


def _list(
    wanted: Collection[int], image: MetadataImage, client_metrics: Collection[str]
) -> Iterator[Values]:
    brokers = [str(broker_id) for broker_id in sorted(image.brokers)]
    names = {
        TOPIC: sorted(image.topics),
        BROKER: brokers,
        BROKER_LOGGER: brokers,
        CLIENT_METRICS: sorted(client_metrics),
        GROUP: sorted(image.group_configs),
    }
    for resource_type, of_type in names.items():
        if resource_type in wanted:
            for name in of_type:
                yield {"resource_name": name, "resource_type": resource_type}
