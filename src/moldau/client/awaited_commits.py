"""Commits that the program waits for, until the machine says how they went. A shell of one loop."""

from __future__ import annotations

import asyncio
import itertools

from moldau.client.rules.consumer_instructions import OffsetsToCommit
from moldau.client.rules.consumer_machine import Turns
from moldau.clock import Clock
from moldau.errors import OperationTimeoutError


class AwaitedCommits:
    """Of one consumer."""

    def __init__(self, turns: Turns, clock: Clock, usual_seconds: float) -> None:
        self._turns = turns
        self._clock = clock
        self._usual_seconds = usual_seconds
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    async def commit(self, offsets: OffsetsToCommit, timeout_seconds: float | None = None) -> None:
        """Raises how it failed."""
        if timeout_seconds is None:
            timeout_seconds = self._usual_seconds
        commit_id = next(self._ids)
        done = self._waiting[commit_id] = asyncio.get_running_loop().create_future()
        # A single request may take longer than the program waits.
        too_late = OperationTimeoutError(f"could not commit within {timeout_seconds:g} seconds")
        timer = self._clock.call_later(timeout_seconds, lambda: self.finish(commit_id, too_late))
        try:
            with self._turns as machine:
                machine.require_commits().commit(commit_id, offsets, timeout_seconds)
            await done
        finally:
            timer.cancel()
            del self._waiting[commit_id]

    def finish(self, commit_id: int, failure: Exception | None) -> None:
        """The first outcome counts."""
        done = self._waiting.get(commit_id)
        if done is None or done.done():
            return
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    def give_up(self, failure: Exception) -> None:
        """Nothing of it will be heard any more."""
        for commit_id in self._waiting:
            self.finish(commit_id, failure)
