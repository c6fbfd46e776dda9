"""Plays stories about consumer groups (KIP-848): heartbeats in, epochs and assignments out.

The commands of `group_stage` that are about topics, positions, time, the log and another
coordinator are the same here. A member has one request, the heartbeat:

    join A reads=t              the first heartbeat, with epoch 0; a member that was fenced
                                joins again with it
                                instance=x rebalance=60s id=A-2
    heartbeat A                 in the epoch that the member was told
                                reads=t,u owns=t-0,t-1 (or owns=nothing) epoch=1 id=A-1
    leave A                     with epoch -1; returns=yes: with epoch -2 (a static member)
    lose A ...                  the same as `heartbeat A ...`, and the answer is lost
"""

from __future__ import annotations

from group_stage import GROUP, Stage, names_of, owned_partitions, parse_ms

from moldau.coordinators.groups.rules.consumer_records import (
    GroupEpochRecord,
    MemberAssignmentRecord,
    MemberSubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    GroupAnswer,
    GroupEvent,
)
from moldau.coordinators.groups.rules.records import CoordinatorRecord


class ConsumerStage(Stage):
    """One story about a consumer group."""

    LOST = ()  # a member joins again when the story says so

    def __init__(self) -> None:
        super().__init__()
        self._instances: dict[str, str] = {}  # of static members, by their names
        self._loses_answer = False

    # Commands

    def _do_join(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        self._ids[name] = options.get("id", self._ids.get(name, f"{name}-1"))
        if "instance" in options:
            self._instances[name] = options["instance"]
        said = {"rebalance": "60s", "owns": "nothing", **options}
        self._request(self._beat(name, JOINING_EPOCH, said), name)

    def _do_heartbeat(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        epoch = int(options.get("epoch", self._generations.get(name, 0)))
        self._request(self._beat(name, epoch, options), name)

    def _do_leave(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        epoch = STATIC_LEAVING_EPOCH if "returns" in options else LEAVING_EPOCH
        self._request(self._beat(name, epoch, {}), name)

    def _do_lose(self, names: list[str], options: dict[str, str]) -> None:
        self._loses_answer = True
        self._do_heartbeat(names, options)
        self._loses_answer = False

    def _beat(self, name: str, epoch: int, options: dict[str, str]) -> GroupEvent:
        rebalance, owned = options.get("rebalance"), options.get("owns")
        return ConsumerHeartbeat(
            group_id=GROUP,
            member_id=options.get("id", self._ids.get(name, f"{name}-1")),
            epoch=epoch,
            instance_id=self._instances.get(name),
            topics=frozenset(options["reads"].split(",")) if "reads" in options else None,
            rebalance_timeout_ms=-1 if rebalance is None else parse_ms(rebalance),
            owned=None if owned is None else owned_partitions(owned),
        )

    # Text

    def _tell(self, name: str, answer: GroupAnswer) -> None:
        if not self._loses_answer:
            super()._tell(name, answer)
        elif isinstance(answer, ConsumerHeartbeatAnswer):
            self._lines.append(f"{name} does not hear: epoch {answer.epoch}")

    def _describe(self, record: CoordinatorRecord) -> str | None:
        match record:
            case GroupEpochRecord(_, value) if value is not None:
                return f"group epoch {value.epoch}"
            case GroupEpochRecord():
                return "the group is gone"
            case TargetEpochRecord(_, epoch):
                return f"target epoch {'is gone' if epoch is None else epoch}"
            case MemberSubscriptionRecord(_, member_id, value) if value is not None:
                instance = "" if value.instance_id is None else f" as instance {value.instance_id}"
                return f"member {member_id}{instance} reads {' '.join(sorted(value.topics))}"
            case MemberSubscriptionRecord(_, member_id, _):
                return f"member {member_id} is gone"
            case TargetAssignmentRecord(_, member_id, target) if target is not None:
                return f"target of {member_id}: {names_of(target)}"
            case TargetAssignmentRecord(_, member_id, _):
                return f"target of {member_id} is gone"
            case MemberAssignmentRecord(_, member_id, None):
                return f"assignment of {member_id} is gone"
            case _:
                return super()._describe(record)
