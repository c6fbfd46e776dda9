"""The choice of a version."""

from __future__ import annotations

import pytest

from moldau.client.connections import choose_version
from moldau.errors import UnsupportedByBrokerError
from moldau.wire.apis import Api, VersionRange

API = Api(99, "Something", 0, spoken=VersionRange(2, 5))


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


def test_a_version_may_be_asked_for_from_below() -> None:
    assert choose_version(API, {99: VersionRange(0, 9)}, at_least=4) == 5
    with pytest.raises(UnsupportedByBrokerError, match="speaks 4 to 5"):
        choose_version(API, {99: VersionRange(0, 3)}, at_least=4)
