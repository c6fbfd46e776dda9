"""Users in the store, as those find them who ask without having said who they are."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from moldau.cluster.credentials import LONGEST_USER_NAME, UserCredentials
from moldau.coordination.port import Coordination


class _Store:
    """Remembers what it was asked for, and has nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def get(self, path: str) -> None:
        self.asked.append(path)


@pytest.mark.parametrize("name", ["x" * (LONGEST_USER_NAME + 1), "ü" * (LONGEST_USER_NAME // 2)])
def test_a_name_too_long_for_the_store_is_nobodys(name: str) -> None:
    store = _Store()
    credentials = UserCredentials(cast(Coordination, store))
    assert asyncio.run(credentials.find("SCRAM-SHA-512", name)) is None
    assert store.asked == []
    assert asyncio.run(credentials.find("SCRAM-SHA-512", "alice")) is None
    assert store.asked == ["/config/users/alice"]
