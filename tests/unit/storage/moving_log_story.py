"""One life of a log as in `power_loss_story`, on a broker with two log directories: the log moves
between them while all of that happens.

A move runs beside appends, truncations, deletions and flushes, in turns that a seed draws; it is
called off, interrupted by a clean stop, a kill, a power loss or a disk that takes nothing any more,
at any step. After each start there is one log, and it is compared with its history (MOV-1, MOV-2,
MOV-3).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from power_loss_story import DATA, PARTITION, Story

from moldau.config.broker_options import BrokerOptions
from moldau.errors import StorageError

MORE = Path("more")


class MovingStory(Story):
    """See the module. `run` once."""

    folders = (DATA, MORE)

    def __init__(self, seed: int, policy: str) -> None:
        super().__init__(seed, policy)
        size = self.random.choice((100, 3_000, 20_000))
        self.broker_options = BrokerOptions.resolve({"replica.fetch.max.bytes": str(size)})
        self.moved = 0

    def _works(self) -> Mapping[Callable[[], Awaitable[None]], int]:
        return {
            **super()._works(),
            self._move: 8,
            self._move_meanwhile: 8,
            self._begin_to_move: 4,
            self._call_off: 1,
        }

    async def _move(self) -> None:
        """From here to there, with nothing in between."""
        source = self.log.directory
        await self._ask_for_move()
        await self._moving(turns=None)
        if self.log.directory is not source:
            self.moved += 1
        else:
            assert any(each.failure is not None for each in self.store.directories)

    async def _move_meanwhile(self) -> None:
        """Other things happen between the steps of a move; maybe it does not come to its end."""
        await self._ask_for_move()
        works = (
            self._append,
            self._flush,
            self._checkpoint,
            self._commit,
            self._compact,
            self._delete_records,
            self._truncate,
            self._begin_anew,
        )
        for _ in range(self.random.randrange(6)):
            await self._moving(turns=self.random.choice((0, 1, 3, 10, 30)))
            work = self.random.choices(works, (10, 2, 1, 3, 1, 1, 3, 1))[0]
            self.happened.append(f"meanwhile {work.__name__}")
            mover = asyncio.create_task(self._moving(turns=None))
            try:
                for _ in range(self.random.randrange(6)):
                    await asyncio.sleep(0)
                await work()
            finally:
                mover.cancel()
                await asyncio.wait([mover])
        if self.random.random() < 0.6:
            await self._moving(turns=None)

    async def _begin_to_move(self) -> None:
        """What happens next happens to a log of which a part is copied."""
        await self._ask_for_move()
        await self._moving(turns=self.random.randrange(60))

    async def _call_off(self) -> None:
        await self.store.moves.cancel_move(PARTITION)

    async def _ask_for_move(self) -> None:
        there = next(each for each in self.folders if each != self.log.directory.folder)
        await self.store.moves.start_move(self.log, there)

    async def _moving(self, turns: int | None) -> None:
        """Let moves go on for so many turns of the loop, or until there are none."""
        mover = asyncio.create_task(self.store.moves.run())
        try:
            for turn in itertools.count():
                if self.store.moves.find(PARTITION) is None or turn == turns:
                    break
                await asyncio.sleep(0)
                if turn % 500 == 499:  # it waits before it tries once more
                    await self.clock.advance(0.1)
        finally:
            mover.cancel()
            await asyncio.wait([mover])

    async def _open(self) -> None:
        await super()._open()
        if self.store.has_offline_folder:  # it is interrupted, and the log may be in there
            raise StorageError("a log directory failed while it was opened")

    async def _start(self) -> None:
        await super()._start()
        names = [
            name
            for folder in self.folders
            for name in self.files.peek_folder(folder)
            if name == str(PARTITION)
        ]
        assert len(names) == 1, names
