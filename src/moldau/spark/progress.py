"""Tells a consumer group how far a streaming query has got, so that lag tools see it.

Spark's checkpoint is what a query goes on from; the group is a copy for people to look at. So a
commit that fails is said in the log and does not stop the query. A shell.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from moldau.errors import MoldauError
from moldau.model import TopicPartition
from moldau.spark.rules.offset_maps import Offsets, without_topics

_log = logging.getLogger("moldau.spark")

REPEAT_SECONDS: Final = 10.0


class ProgressCommits:
    """What was committed last; nothing is committed twice. Belongs to one thread."""

    def __init__(
        self, commit: Callable[[Offsets], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._commit = commit
        self._now = now
        self._last: dict[TopicPartition, int] = {}
        self._refused: dict[TopicPartition, int] = {}  # what the group still has to be told
        self._refused_at = 0.0

    def begin_at(self, offsets: Offsets) -> None:
        """Where a new query begins is no progress yet."""
        self._last = dict(offsets)

    def advance_to(self, offsets: Offsets) -> None:
        """Everything before these offsets is completed."""
        news = {one: offset for one, offset in offsets.items() if self._last.get(one) != offset}
        if news and news != self._refused:
            self._try(news)
        else:
            self.maybe_repeat()

    def advance_at_least_to(self, offsets: Offsets) -> None:
        """The same said late: what is known to be completed further on stays so."""
        known = self._last
        self.advance_to({one: max(offset, known.get(one, 0)) for one, offset in offsets.items()})

    def forget_topics(self, topics: Collection[str]) -> None:
        """The topics were recreated: what was committed was of others."""
        self._last = dict(without_topics(self._last, topics))
        self._refused = dict(without_topics(self._refused, topics))

    def maybe_repeat(self) -> None:
        """Tell the group what it has refused, if that was some time ago."""
        if self._refused and self._now() - self._refused_at >= REPEAT_SECONDS:
            self._try(self._refused)

    def _try(self, news: dict[TopicPartition, int]) -> None:
        try:
            self._commit(news)
        except MoldauError as error:
            if not self._refused:
                _log.warning("the group was not told of the query's progress: %s", error)
            self._refused, self._refused_at = news, self._now()
            return
        self._last.update(news)
        self._refused = {}
