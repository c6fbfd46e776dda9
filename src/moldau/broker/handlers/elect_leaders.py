"""ElectLeaders, versions 0 to 2.

Gives leadership back to the preferred replicas, or lets any living replica lead where nobody does
and records may be lost by it.

v1 the type of election (preferred or unclean) and a top-level error; v2 flexible.

A request for all partitions (null) is answered with those whose leader was changed or could not
be, as in Kafka. The time-out is not used: the answer leaves when the elections are written.
"""

from __future__ import annotations

from collections.abc import Iterable

from kio.schema.elect_leaders.v2 import ElectLeadersRequest

from moldau.broker.api import RequestContext, Values, error_values, group_by_topic, serves
from moldau.broker.authorization import audit_change, authorize
from moldau.cluster.elections import Outcomes
from moldau.errors import ErrorCode, InvalidRequestError, KafkaError
from moldau.model import AclOperation, TopicPartition
from moldau.wire.apis import ELECT_LEADERS

API = serves(
    ELECT_LEADERS, needs=AclOperation.ALTER, changes_cluster=True, droppable=("error_code",)
)

_PREFERRED = 0
_UNCLEAN = 1
_FIRST_WITH_ERROR = 1
_TOLD = 20  # partitions in a line of the audit log


async def handle(request: ElectLeadersRequest, context: RequestContext) -> Values:
    election_type = getattr(request, "election_type", _PREFERRED)
    wanted = _wanted_partitions(request)
    error: KafkaError | None = None
    outcomes: Outcomes = {}
    try:
        authorize(context, API)
        if election_type not in (_PREFERRED, _UNCLEAN):
            raise InvalidRequestError(f"there is no election of type {election_type}")
        outcomes = await context.services.admin.elect_leaders(
            wanted, unclean=election_type == _UNCLEAN
        )
        await context.services.wait_until_applied()
    except KafkaError as refused:
        error = refused
        if context.version < _FIRST_WITH_ERROR:
            outcomes = dict.fromkeys(wanted or (), refused)
    audit_change(context, "all partitions" if wanted is None else _subject(wanted), error)
    return {
        "error_code": ErrorCode.none if error is None else error.code,
        "replica_election_results": list(_results(outcomes)),
    }


def _subject(wanted: list[TopicPartition]) -> str:
    return ", ".join(map(str, wanted[:_TOLD]))


def _wanted_partitions(request: ElectLeadersRequest) -> list[TopicPartition] | None:
    if request.topic_partitions is None:
        return None
    rows = ((row.topic, number) for row in request.topic_partitions for number in row.partitions)
    return [TopicPartition(topic, number) for topic, number in rows]


def _results(outcomes: Outcomes) -> Iterable[Values]:
    for topic, errors in group_by_topic(outcomes).items():
        rows = [{"partition_id": one, **error_values(error)} for one, error in errors.items()]
        yield {"topic": topic, "partition_result": rows}
