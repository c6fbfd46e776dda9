"""PushTelemetry, version 0 (KIP-714): a client's own metrics, as OpenTelemetry's MetricsData.

They are shown on the metrics port until the next push, the last one (`terminating`), or three
intervals of silence. UNKNOWN_SUBSCRIPTION_ID has the client ask again what it shall push.
"""

from __future__ import annotations

from kio.schema.push_telemetry.v0 import PushTelemetryRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.monitoring.client_telemetry import NO_ID
from moldau.wire.apis import PUSH_TELEMETRY

API = serves(PUSH_TELEMETRY)


async def handle(request: PushTelemetryRequest, context: RequestContext) -> Values:
    error = await context.services.telemetry.push(
        request.client_instance_id or NO_ID,
        request.subscription_id,
        request.compression_type,
        request.metrics,
        is_terminating=request.terminating,
    )
    return {"error_code": error}
