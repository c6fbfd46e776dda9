"""How far the groups that this broker coordinates are behind, looked at every ten seconds.

Ends of partitions that have a replica here are at hand; those of others are asked for, one request
to each of their leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from moldau.clock import Clock
from moldau.cluster.elections import Answers, Questions
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.groups import AnyGroup
from moldau.coordinators.groups.rules.offsets import is_current
from moldau.coordinators.groups.rules.share_group import ShareGroup
from moldau.model import NO_BROKER, BrokerId, TopicPartition, records_behind
from moldau.replication.partitions import Partitions

INTERVAL_SECONDS: Final = 10.0
MOST_PAIRS: Final = 2000
"""Of a group and a topic; the first ones in the order of their names have figures."""

_OFFSETS_PER_TURN = 500

GroupTopic: TypeAlias = tuple[str, str]
AskEnds: TypeAlias = Callable[[Questions], Awaitable[Answers]]


class Lag(NamedTuple):
    """Of one group in one topic: all records to be read, and the age of the oldest of them."""

    records: int
    seconds: float


class GroupLags:
    """See the module. One task runs `run`."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        groups: Callable[[], Iterable[AnyGroup]],
        partitions: Partitions,
        image: Callable[[], MetadataImage],
        ask_ends: AskEnds,
        clock: Clock,
    ) -> None:
        self._broker_id = broker_id
        self._groups = groups
        self._partitions = partitions
        self._image = image
        self._ask_ends = ask_ends
        self._clock = clock
        self._samples: dict[TopicPartition, tuple[EndSample, ...]] = {}
        self.lags: Mapping[GroupTopic, Lag] = {}  # as of the last look; replaced, never changed

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(INTERVAL_SECONDS)

    async def look(self) -> None:
        """Measure all groups now."""
        committed = await self._gather_committed()
        wanted = {one for offsets in committed.values() for one in offsets}
        ends = await self._find_ends(wanted)
        now = self._clock.monotonic()
        self._samples = {
            one: add_sample(self._samples.get(one, ()), EndSample(now, end))
            for one, end in ends.items()
        }
        lags: dict[GroupTopic, Lag] = {}
        for count, (pair, offsets) in enumerate(committed.items(), start=1):
            known = [(one, offset) for one, offset in offsets.items() if one in ends]
            if known:
                records = sum(records_behind(offset, ends[one]) for one, offset in known)
                behind = (seconds_behind(self._samples[one], at, now) for one, at in known)
                lags[pair] = Lag(records, max(behind))
            if count % _OFFSETS_PER_TURN == 0:
                await asyncio.sleep(0)
        self.lags = lags

    async def _gather_committed(self) -> dict[GroupTopic, dict[TopicPartition, int]]:
        committed: dict[GroupTopic, dict[TopicPartition, int]] = {}
        seen = 0
        for group in sorted(self._groups(), key=lambda one: one.group_id):
            if isinstance(group, ShareGroup):
                continue  # it commits nothing here
            for topic, partition, one in tuple(group.offsets):
                pair = group.group_id, topic
                if pair not in committed and len(committed) >= MOST_PAIRS:
                    continue
                if not is_current(topic, one, self._image()):
                    continue
                committed.setdefault(pair, {})[TopicPartition(topic, partition)] = one.offset
                seen += 1
                if seen % _OFFSETS_PER_TURN == 0:
                    await asyncio.sleep(0)
        return committed

    async def _find_ends(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        questions: dict[BrokerId, list[TopicPartition]] = {}
        image = self._image()
        for one in wanted:
            here = self._partitions.find(*one)
            state = image.find_partition(*one)
            if here is not None and (here.is_leader or here.is_following):
                ends[one] = here.high_watermark
            elif state is not None and state.leader not in (NO_BROKER, self._broker_id):
                questions.setdefault(state.leader, []).append(one)
        if questions:
            for one, told in (await self._ask_ends(questions)).items():
                ends[one] = max(end.end_offset for end in told.values())
        return ends


MOST_SAMPLES: Final = 120
"""Of one partition. When there are more, every second of the older half goes."""


class EndSample(NamedTuple):
    """Where a partition ended at a time, in seconds.

    Records carry the time of their producers, and looking one up costs a read; so the end of each
    partition is looked at from time to time, and a committed offset is placed between two looks.
    """

    at: float
    end_offset: int


def add_sample(samples: Sequence[EndSample], sample: EndSample) -> tuple[EndSample, ...]:
    """With one more look. Where nothing has come, only the last of them counts."""
    if samples and sample.end_offset < samples[-1].end_offset:
        return (sample,)  # cut off, or another topic: what was known says nothing
    kept = tuple(samples)
    if len(kept) >= 2 and kept[-1].end_offset == kept[-2].end_offset == sample.end_offset:
        kept = kept[:-1]
    kept = (*kept, sample)
    if len(kept) > MOST_SAMPLES:
        older, newer = kept[: MOST_SAMPLES // 2], kept[MOST_SAMPLES // 2 :]
        kept = older[::2] + newer
    return kept


def seconds_behind(samples: Sequence[EndSample], committed: int, now: float) -> float:
    """How long ago the first record that is not committed came.

    0 where there is none. Before the first look nothing is known: then since that look.
    """
    if not samples or committed >= samples[-1].end_offset:
        return 0.0
    former: EndSample | None = None
    for sample in samples:
        if sample.end_offset > committed:
            if former is None:
                return max(0.0, now - sample.at)
            share = (committed - former.end_offset) / (sample.end_offset - former.end_offset)
            came_at = former.at + share * (sample.at - former.at)
            return max(0.0, now - came_at)
        former = sample
    return 0.0
