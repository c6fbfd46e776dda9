"""DescribeConfigs, versions 1 to 4.

Every option of a topic, of this broker, of a group or of a subscription to clients' metrics:
effective value, where it came from, what it would fall back to, type and documentation. All of it
derives from the declarations in `config`. And the levels of this broker's loggers.

v2 throttle after the answer; v3 type and documentation; v4 flexible.
"""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.describe_configs.v4 import DescribeConfigsRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsResource

from moldau.broker.api import (
    RequestContext,
    Services,
    Slices,
    Values,
    answered_class,
    encode_array,
    error_values,
    serves,
)
from moldau.broker.config_resources import (
    AnyResource,
    ClientMetricsResource,
    GroupResource,
    LoggerResource,
    TopicResource,
    authorize_resource,
    list_levels,
    require_resource,
)
from moldau.config.describe import (
    DescribedOption,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group_configs,
    describe_topic,
)
from moldau.config.option import OptionSource, OptionType
from moldau.errors import KafkaError
from moldau.model import AclOperation
from moldau.wire.apis import DESCRIBE_CONFIGS

API = serves(DESCRIBE_CONFIGS, droppable=("config_type", "documentation"))


_RESOURCES_AT_ONCE = 5
"""Before others have the loop: a topic has some thirty options."""


async def handle(request: DescribeConfigsRequest, context: RequestContext) -> Values:
    documented = getattr(request, "include_documentation", False)
    results = (
        _describe(wanted, request.include_synonyms, documented, context)
        for wanted in request.resources
    )
    result_class = answered_class(API, context.version, "results")
    slices = Slices(_RESOURCES_AT_ONCE)
    return {"results": await encode_array(result_class, results, API, slices)}


def _describe(
    wanted: DescribeConfigsResource, synonyms: bool, documented: bool, context: RequestContext
) -> Values:
    services = context.services
    named = wanted.resource_type, wanted.resource_name
    base = {"resource_type": wanted.resource_type, "resource_name": wanted.resource_name}
    try:
        authorize_resource(context, AclOperation.DESCRIBE_CONFIGS, *named)
        resource = require_resource(*named, services)
    except KafkaError as error:
        return {**base, **error_values(error), "configs": []}
    names = wanted.configuration_keys  # null and an empty list both mean every option
    return {
        **base,
        **error_values(None),
        "configs": [
            _option_values(option, synonyms, documented)
            for option in _options_of(resource, services)
            if not names or option.name in names
        ],
    }


def _options_of(resource: AnyResource, services: Services) -> Sequence[DescribedOption]:
    if isinstance(resource, TopicResource):
        return describe_topic(services.image.topics[resource.name].configs, services.options)
    if isinstance(resource, GroupResource):
        settings = services.image.group_config(resource.group_id)
        return describe_group_configs(settings, services.options)
    if isinstance(resource, LoggerResource):
        return [_describe_level(name, level) for name, level in list_levels().items()]
    if isinstance(resource, ClientMetricsResource):
        settings = services.telemetry.configs.settings.get(resource.name, {})
        return describe_client_metrics(settings, services.options)
    if resource.broker_id is None:
        return describe_broker_defaults(services.image.default_broker_config)
    return describe_broker(services.options)


def _describe_level(name: str, level: str) -> DescribedOption:
    return DescribedOption(
        name=name,
        value=level,
        is_default=False,
        source=OptionSource.BROKER_LOGGER_CONFIG,
        read_only=False,
        sensitive=False,
        type=OptionType.STRING,
        documentation="",
        synonyms=(),
    )


def _option_values(option: DescribedOption, synonyms: bool, documented: bool) -> Values:
    return {
        "name": option.name,
        "value": option.value,
        "read_only": option.read_only,
        "config_source": option.source,
        "is_sensitive": option.sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": synonym.source}
            for synonym in (option.synonyms if synonyms else ())
        ],
        "config_type": option.type,
        "documentation": option.documentation if documented else None,
    }
