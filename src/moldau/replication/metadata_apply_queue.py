"""Which of the published metadata images says what the replicas here are.

Images are applied one after the other, in the order in which they were published. While the broker
has no session with the store, none is: it may be older than somebody else's election. What waited
then is of a session that has ended, and so is what is still being applied when the next one begins.

A shell around a queue, owned by the event loop; it decides nothing but this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from moldau.cluster.rules.metadata_image import MetadataImage, TopicState
from moldau.model import TopicId
from moldau.replication.rules.stray_replicas import is_same_topic


class MetadataApplyQueue:
    """The images that wait, the one that is being applied or was last, and the newest."""

    def __init__(self) -> None:
        self.current: MetadataImage | None = None  # that is being applied, or was last
        self._former: MetadataImage | None = None  # that was applied before it
        self._newest: MetadataImage | None = None  # that was published
        self._is_suspended = False
        self._resumed_version = -1  # of the image that was read when the present session began
        self._waiting: asyncio.Queue[tuple[MetadataImage | None, frozenset[str]]] = asyncio.Queue()
        self._applied_version = -1
        self._applied = asyncio.Condition()

    # Coming

    def publish(self, image: MetadataImage, changed: frozenset[str]) -> frozenset[str]:
        """Have an image applied in its turn; returns the topics that have gone with it.

        They are not in it any more, or are others under their names.
        """
        former = self._newest
        self._note_newest(image)
        if self._is_suspended:
            return frozenset()
        self._waiting.put_nowait((image, changed))
        return frozenset() if former is None else _find_gone(changed, former, image)

    def apply_again(self, topic: str) -> None:
        """What could not be applied is tried with the image that is in force then."""
        if not self._is_suspended:
            self._waiting.put_nowait((None, frozenset((topic,))))

    def suspend(self) -> None:
        """The session is over: apply nothing until `resume`."""
        self._is_suspended = True
        self.forget_waiting()

    def resume(self, image: MetadataImage, topics_here: Iterable[str]) -> None:
        """There is a session again, and this image was read in it."""
        self._is_suspended = False
        self._note_newest(image)
        self._resumed_version = image.version
        self._waiting.put_nowait((image, frozenset((*image.topics, *topics_here))))

    def forget_waiting(self) -> None:
        while not self._waiting.empty():
            self._waiting.get_nowait()

    async def next_image(self) -> tuple[MetadataImage | None, frozenset[str]]:
        """The next image to apply, and the topics that it changes; waits until there is one."""
        image, changed = await self._waiting.get()
        return image or self.current, changed

    # Applying

    def start_applying(self, image: MetadataImage) -> MetadataImage | None:
        """An image is being applied from now on; returns the one before it."""
        self._former, self.current = self.current, image
        self._note_newest(image)
        return self._former

    def has_appeared(self, topic: TopicState) -> bool:
        """Whether a topic is in the image that is being applied, and was not in the one before it,
        which is of the same session: it was made just now."""
        former = self._former
        if former is None or former.version < self._resumed_version:
            return False
        known = former.topics.get(topic.name)
        return known is None or not is_same_topic(known.topic_id, topic.topic_id)

    def _note_newest(self, image: MetadataImage) -> None:
        if self._newest is None or image.version >= self._newest.version:
            self._newest = image

    def is_obsolete(self, image: MetadataImage) -> bool:
        """Whether an image is of a session that has ended, and there is another one."""
        return image.version < self._resumed_version

    def decides(self, image: MetadataImage, topic: str, topic_id: TopicId) -> bool:
        """Whether an image may say what a replica is; else a later one does, or none for now."""
        is_late = self._is_suspended or self.is_obsolete(image)
        return not is_late and not self.has_gone(topic, topic_id)

    def has_gone(self, topic: str, topic_id: TopicId) -> bool:
        """Whether the newest image knows no such topic any more."""
        if self._newest is None:
            return False
        known = self._newest.topics.get(topic)
        return known is None or not is_same_topic(topic_id, known.topic_id)

    async def note_applied(self, image: MetadataImage) -> None:
        async with self._applied:
            self._applied_version = max(self._applied_version, image.version)
            self._applied.notify_all()

    async def wait_until_applied(self, version: int) -> None:
        """Return when the image of this version, or a later one, is in force here."""
        async with self._applied:
            await self._applied.wait_for(lambda: self._applied_version >= version)


def _find_gone(names: Iterable[str], former: MetadataImage, image: MetadataImage) -> frozenset[str]:
    return frozenset(
        name
        for name in names
        if (known := former.topics.get(name)) is not None
        and ((topic := image.topics.get(name)) is None or topic.topic_id != known.topic_id)
    )
