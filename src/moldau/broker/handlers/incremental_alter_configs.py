"""IncrementalAlterConfigs, versions 0 and 1 (KIP-339).

Sets, unsets, appends to and subtracts from single options of a topic, a broker, a group or a
subscription to clients' metrics, and leaves the others alone; sets and unsets the levels of this
broker's loggers (KIP-412).

v1 is flexible.
"""

from __future__ import annotations

from functools import partial

from kio.schema.incremental_alter_configs.v1 import IncrementalAlterConfigsRequest
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, AlterConfigsResource

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.config_resources import alter_resource
from moldau.config.alterations import ConfigChange, ConfigOperation
from moldau.errors import InvalidRequestError
from moldau.wire.apis import INCREMENTAL_ALTER_CONFIGS

API = serves(INCREMENTAL_ALTER_CONFIGS, changes_cluster=True)


async def handle(request: IncrementalAlterConfigsRequest, context: RequestContext) -> Values:
    answers = [
        await alter_resource(
            wanted, partial(_changes_of, wanted), context, validate_only=request.validate_only
        )
        for wanted in request.resources
    ]
    await context.services.wait_until_applied()
    return {"responses": answers}


def _changes_of(wanted: AlterConfigsResource) -> list[ConfigChange]:
    return [_change_of(config) for config in wanted.configs]


def _change_of(config: AlterableConfig) -> ConfigChange:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        raise InvalidRequestError(
            f"there is no config operation {config.config_operation}"
        ) from None
    return ConfigChange(name=config.name, value=config.value, operation=operation)
