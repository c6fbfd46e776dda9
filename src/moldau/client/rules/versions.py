"""Which version of a request to send: the newest that broker and client both speak. A rule."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.errors import UnsupportedByBrokerError
from moldau.wire.apis import Api, VersionRange

BrokerVersions = Mapping[int, VersionRange]
"""By API key: what the broker's answer to ApiVersions says."""


def choose_version(
    api: Api, broker: BrokerVersions, *, at_least: int = 0, at_most: int | None = None
) -> int:
    """The newest common version between these two; raises when there is none."""
    served = broker.get(api.key)
    if served is None:
        raise UnsupportedByBrokerError(f"the broker does not serve {api.name} requests")
    first = max(api.spoken.first, at_least)
    last = api.spoken.last if at_most is None else min(api.spoken.last, at_most)
    version = min(last, served.last)
    if version < max(first, served.first):
        raise UnsupportedByBrokerError(
            f"the broker serves {api.name} versions {served.first} to {served.last}, "
            f"this client speaks {first} to {last}"
        )
    return version
