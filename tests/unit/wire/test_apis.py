"""The table of APIs, compared with kio's schemas."""

from __future__ import annotations

import re

import pytest
from kio.schema.index import api_key_map

from moldau.wire.apis import APIS, FIRST_FLEXIBLE, Api
from moldau.wire.versions import request_class, response_class

from .strategies import versions_of

every_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


def test_the_table_knows_every_api_of_kio_by_its_name() -> None:
    names = {key: re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower() for key, api in APIS.items()}
    assert names == api_key_map
    assert all(key == api.key for key, api in APIS.items())


@every_api
def test_the_first_flexible_version_is_the_one_of_kio(api: Api) -> None:
    versions = versions_of(api.key)
    first = FIRST_FLEXIBLE[api.key]
    for version in {versions[0], versions[-1], first - 1, first} & set(versions):
        assert request_class(api.key, version).__flexible__ is (version >= first)
        assert response_class(api.key, version).__flexible__ is (version >= first)


@every_api
def test_every_version_that_is_served_or_spoken_has_its_messages(api: Api) -> None:
    for first, last in (api.served, api.spoken):
        for version in range(first, last + 1):
            assert request_class(api.key, version).__api_key__ == api.key
            assert response_class(api.key, version).__api_key__ == api.key


@every_api
def test_this_client_speaks_to_this_broker_whatever_it_speaks_at_all(api: Api) -> None:
    if api.spoken.last >= 0:
        assert api.served.first <= api.spoken.last <= api.served.last
