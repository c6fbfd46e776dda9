"""AlterConfigs, versions 0 to 2: the old way, which replaces everything that was set.

An option that the request does not name goes back to its default. IncrementalAlterConfigs is what
new clients use.

v1 throttle after the answer; v2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.config_resources import (
    AnyResource,
    ClientMetricsResource,
    GroupResource,
    LoggerResource,
    TopicResource,
    alter_resource,
)
from moldau.broker.request_context import RequestContext
from moldau.errors import InvalidRequestError
from moldau.wire.apis import ALTER_CONFIGS

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2 import AlterConfigsRequest
    from kio.schema.alter_configs.v2.request import AlterConfigsResource

API = serves(ALTER_CONFIGS)


async def handle(request: AlterConfigsRequest, context: RequestContext) -> dict[str, object]:
    answers = [
        await _replace(wanted, request.validate_only, context) for wanted in request.resources
    ]
    await context.services.wait_until_applied()
    return {"throttle_time": 0, "responses": answers}


async def _replace(
    wanted: AlterConfigsResource, validate_only: bool, context: RequestContext
) -> dict[str, object]:
    admin = context.services.admin

    async def replace(resource: AnyResource) -> None:
        configs = _configs_of(wanted)
        if isinstance(resource, TopicResource):
            await admin.replace_topic_configs(resource.name, configs, validate_only=validate_only)
        elif isinstance(resource, GroupResource):
            await admin.replace_group_configs(
                resource.group_id, configs, validate_only=validate_only
            )
        elif isinstance(resource, LoggerResource):
            raise InvalidRequestError("levels of loggers are altered one by one (API 44)")
        elif isinstance(resource, ClientMetricsResource):
            kept = context.services.telemetry.configs
            await kept.replace(resource.name, configs, validate_only=validate_only)
        else:
            await admin.replace_broker_configs(
                resource.broker_id, configs, validate_only=validate_only
            )

    return await alter_resource(wanted, replace, context)


def _configs_of(wanted: AlterConfigsResource) -> dict[str, str]:
    """A null value unsets, as leaving the option out does."""
    names = [config.name for config in wanted.configs]
    if len(set(names)) != len(names):
        raise InvalidRequestError("an option stands in the request twice")
    return {config.name: config.value for config in wanted.configs if config.value is not None}
