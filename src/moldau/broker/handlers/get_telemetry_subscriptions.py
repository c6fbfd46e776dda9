"""GetTelemetrySubscriptions, version 0 (KIP-714): which of its own metrics a client shall push.

What fits it of the subscriptions that are set up as configs of type CLIENT_METRICS; nothing where
there are none. A client without an id gets one. Who asks again before its interval is over gets
THROTTLING_QUOTA_EXCEEDED.

Differences from Kafka: ApiVersions advertises the API while a subscription exists and
`metrics.listener` is set; Kafka's brokers do so when a plug-in receives what is pushed. A request
is answered in any case, since a client may know the API from an earlier connection. Sums are asked
for as they stand (cumulative), since that is what Prometheus wants.
"""

from __future__ import annotations

from typing import Final

from kio.schema.get_telemetry_subscriptions.v0 import GetTelemetrySubscriptionsRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.monitoring.client_telemetry import NO_ID, TelemetryClient
from moldau.records.compression import Codec
from moldau.wire.apis import GET_TELEMETRY_SUBSCRIPTIONS

API = serves(GET_TELEMETRY_SUBSCRIPTIONS)

_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""The best first, as Kafka does."""


def handle(request: GetTelemetrySubscriptionsRequest, context: RequestContext) -> Values:
    telemetry = context.services.telemetry
    client = TelemetryClient(
        client_id=context.header.client_id or "",
        connection_id=context.connection.id,
        address=context.connection.peer_host,
    )
    instance_id, requested, error = telemetry.subscribe(client, request.client_instance_id or NO_ID)
    return {
        "error_code": error,
        "client_instance_id": instance_id,
        "subscription_id": requested.subscription_id,
        "accepted_compression_types": [codec.value for codec in _CODECS],
        "push_interval": requested.interval_ms,
        "telemetry_max_bytes": telemetry.max_bytes(),
        "delta_temporality": False,
        "requested_metrics": list(requested.metrics),
    }
