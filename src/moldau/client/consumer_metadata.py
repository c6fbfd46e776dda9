"""Keeps a consumer's metadata fresh: when it is old, when something failed, when topics are new.

A shell: one task, owned by the consumer, asks one broker at a time and no more often than the
backoff allows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from moldau.client.cluster_client import ClusterClient
from moldau.client.news import News
from moldau.errors import ClientError, KafkaError

WantedTopics = Callable[[], Collection[str] | None]
"""The topics to ask about; None stands for all."""


class MetadataKeeper:
    """Asks again and again; `on_fresh` hears of every answer."""

    def __init__(
        self,
        client: ClusterClient,
        topics: WantedTopics,
        *,
        max_age_seconds: float,
        may_create: bool,
        on_fresh: Callable[[], None],
        on_failure: Callable[[KafkaError | ClientError], None],
    ) -> None:
        self.is_known = False  # an answer has come
        self._client = client
        self._topics = topics
        self._max_age_seconds = max_age_seconds
        self._may_create = may_create
        self._on_fresh = on_fresh
        self._on_failure = on_failure
        self._wishes = News(client.clock)

    def want(self) -> None:
        """Ask soon."""
        self._wishes.announce()

    async def run(self) -> None:
        attempt = seen = 0
        while True:
            await self._wishes.wait_for_more(seen, self._max_age_seconds)
            seen = self._wishes.count
            if await self._refresh():
                attempt = 0
            else:
                attempt += 1
                self.want()
            delay = self._client.backoff_seconds(attempt)
            await self._client.clock.sleep(delay)

    async def _refresh(self) -> bool:
        """Whether all topics are known and without a fault now."""
        topics = self._topics()
        try:
            found = await self._client.metadata.refresh(topics, may_create=self._may_create)
        except (KafkaError, ClientError) as error:
            self._on_failure(error)
            return False
        self.is_known = True
        self._on_fresh()
        wanted = found.topics if topics is None else topics
        return all(name in found.topics and found.topics[name].error is None for name in wanted)
