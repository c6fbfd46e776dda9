"""The partitions of an OffsetCommit or TxnOffsetCommit, and what is answered for each. A shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from moldau.broker.api import RequestContext, Values
from moldau.broker.authorization import may_topic
from moldau.cluster.rules.metadata_image import NO_TOPIC_ID, TopicState
from moldau.coordinators.groups.rules.events import PartitionsAnswer
from moldau.coordinators.groups.rules.records import CommittedOffset
from moldau.errors import ErrorCode
from moldau.model import NO_LEADER_EPOCH, NO_TIMESTAMP, AclOperation

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10.request import OffsetCommitRequestTopic
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequestTopic

_UNKNOWN = ErrorCode.unknown_topic_or_partition


class OffsetRows:
    """The answer in the making: a code for each partition, in the order of the request.

    None stands for a partition that the coordinator decides about. `translate` says it in the words
    of the client's version.
    """

    def __init__(
        self,
        topics: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
        context: RequestContext,
        *,
        by_id: bool = False,
        expire_ms: int = NO_TIMESTAMP,
        translate: Callable[[ErrorCode], ErrorCode] = lambda code: code,
    ) -> None:
        self.offsets: list[tuple[str, int, CommittedOffset]] = []
        self._key_name = "topic_id" if by_id else "name"
        self._now_ms = context.services.publisher.store_now_ms()
        self._expire_ms = expire_ms
        self._translate = translate
        self._rows: list[tuple[object, list[tuple[int, ErrorCode | None]]]] = []
        for topic in topics:
            self._add_topic(topic, context)

    def _add_topic(
        self, topic: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic, context: RequestContext
    ) -> None:
        key: UUID | str | None = getattr(topic, self._key_name)
        state = _find_topic(key, context)
        name = key if isinstance(key, str) else None if state is None else state.name
        is_denied = name is not None and not may_topic(context, AclOperation.READ, name)
        codes: list[tuple[int, ErrorCode | None]] = []
        self._rows.append((key, codes))
        if is_denied:
            code = ErrorCode.topic_authorization_failed
        else:
            code = ErrorCode.unknown_topic_id if name is None else _UNKNOWN
        count = 0 if is_denied or name is None or state is None else len(state.partitions)
        now_ms, expire_ms = self._now_ms, self._expire_ms
        topic_id = None if state is None or state.topic_id == NO_TOPIC_ID else state.topic_id
        names_topic_id = not isinstance(key, str)
        offsets = self.offsets
        for wanted in topic.partitions:
            number = wanted.partition_index
            if not 0 <= number < count:
                codes.append((number, code))
                continue
            codes.append((number, None))
            committed = CommittedOffset(
                wanted.committed_offset,
                getattr(wanted, "committed_leader_epoch", NO_LEADER_EPOCH),
                wanted.committed_metadata or "",
                now_ms,
                expire_ms,
                topic_id,
                names_topic_id,
            )
            offsets.append((name or "", number, committed))

    def shape(self, answer: PartitionsAnswer) -> Values:
        decided = iter(answer.errors)

        def code_of(code: ErrorCode | None) -> ErrorCode:
            if code is None:
                code = next(decided) if answer.error is ErrorCode.none else answer.error
            return self._translate(code)

        return self._values(code_of)

    def refuse(self, error: ErrorCode) -> Values:
        """The same for every partition."""
        return self._values(lambda _: error)

    def _values(self, code_of: Callable[[ErrorCode | None], ErrorCode]) -> Values:
        return {
            "topics": [
                {
                    self._key_name: key,
                    "partitions": [
                        {"partition_index": number, "error_code": code_of(code)}
                        for number, code in codes
                    ],
                }
                for key, codes in self._rows
            ]
        }


def _find_topic(key: UUID | str | None, context: RequestContext) -> TopicState | None:
    image = context.services.image
    if isinstance(key, str):
        return image.topics.get(key)
    return None if key is None else image.topics_by_id.get(key)
