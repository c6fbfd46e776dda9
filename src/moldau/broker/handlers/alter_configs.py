"""AlterConfigs, versions 0 to 2: the old way, which replaces everything that was set.

An option that the request does not name goes back to its default. IncrementalAlterConfigs is what
new clients use.

v1 throttle after the answer; v2 flexible.
"""

from __future__ import annotations

from functools import partial

from kio.schema.alter_configs.v2 import AlterConfigsRequest
from kio.schema.alter_configs.v2.request import AlterConfigsResource

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.config_resources import alter_resource
from moldau.errors import InvalidRequestError
from moldau.wire.apis import ALTER_CONFIGS

API = serves(ALTER_CONFIGS, changes_cluster=True)


async def handle(request: AlterConfigsRequest, context: RequestContext) -> Values:
    answers = [
        await alter_resource(
            wanted, partial(_configs_of, wanted), context, validate_only=request.validate_only
        )
        for wanted in request.resources
    ]
    await context.services.wait_until_applied()
    return {"responses": answers}


def _configs_of(wanted: AlterConfigsResource) -> dict[str, str]:
    """A null value unsets, as leaving the option out does."""
    names = [config.name for config in wanted.configs]
    if len(set(names)) != len(names):
        raise InvalidRequestError("an option stands in the request twice")
    return {config.name: config.value for config in wanted.configs if config.value is not None}
