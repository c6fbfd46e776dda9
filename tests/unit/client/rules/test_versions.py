"""The choice of a version, and the table of what this client speaks."""

from __future__ import annotations

import pytest

from moldau.client.rules import versions
from moldau.client.rules.versions import Api, VersionRange, choose_version
from moldau.errors import UnsupportedByBrokerError
from moldau.wire.versions import request_class, response_class

API = Api("Something", 99, 2, 5)


def test_the_newest_common_version_is_chosen() -> None:
    assert choose_version(API, {99: VersionRange(0, 9)}) == 5
    assert choose_version(API, {99: VersionRange(0, 3)}) == 3
    assert choose_version(API, {99: VersionRange(0, 9)}, at_most=4) == 4


@pytest.mark.parametrize("served", [{}, {99: VersionRange(0, 1)}, {99: VersionRange(6, 9)}])
def test_no_common_version_is_an_error_that_names_the_request(
    served: dict[int, VersionRange],
) -> None:
    with pytest.raises(UnsupportedByBrokerError, match="Something"):
        choose_version(API, served)


def test_every_version_in_the_table_has_its_messages() -> None:
    apis = [found for found in vars(versions).values() if isinstance(found, Api)]
    assert len(apis) > 10
    for api in apis:
        for version in (api.first, api.last):
            assert request_class(api.key, version).__api_key__ == api.key
            assert response_class(api.key, version).__api_key__ == api.key
