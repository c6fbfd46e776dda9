"""When a producer asks for metadata. A rule."""

from __future__ import annotations

from moldau.client.rules.partition_queue import NEVER
from moldau.client.rules.retries import Backoff, Chance


class MetadataNeed:
    """When a producer asks for the metadata of its topics: when something that it knew has turned
    out wrong, and when it is old; one request at a time, with a growing pause in between."""

    def __init__(self, max_age_seconds: float) -> None:
        self.is_wanted = False
        self.is_asking = False
        self._max_age_seconds = max_age_seconds
        self._known_at: float | None = None  # the last answer; None until there is something to age
        self._not_before = 0.0
        self._attempt = 0  # how often it was wanted again before the pause was over

    def want(self, now: float) -> None:
        if not self.is_wanted and now >= self._not_before:
            self._attempt = 0
        self.is_wanted = True

    def is_due(self, now: float) -> bool:
        if self._known_at is None:
            self._known_at = now
        if now >= self._known_at + self._max_age_seconds:
            self.is_wanted = True
        return self.is_wanted and not self.is_asking and now >= self._not_before

    def next_at(self) -> float:
        if self.is_asking or self._known_at is None:
            return NEVER
        return self._not_before if self.is_wanted else self._known_at + self._max_age_seconds

    def on_answer(self, now: float, backoff: Backoff, chance: Chance) -> None:
        self.is_wanted = self.is_asking = False
        self._known_at = now
        self._not_before = now + backoff.delay_seconds(self._attempt, chance)
        self._attempt += 1
