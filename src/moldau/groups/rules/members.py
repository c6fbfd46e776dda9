"""The members of a group: who is in, what they can speak, who waits for an answer.

Answers for the members as they are now, which is soft state: the ones of the last generation are in
the log, those who have come or gone since are not. When a rebalance begins and ends is for `group`.
A rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from moldau.errors import InvariantViolation
from moldau.groups.rules.events import GroupProtocol
from moldau.groups.rules.records import StoredMember


class Member:
    """One member. At most one of `join_request` and `sync_request` is set."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_abandoned",
        "join_request",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_request",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[GroupProtocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols  # in the order of the member's preference
        self.assignment = assignment
        self.join_request: int | None = None  # parked until all have joined
        self.sync_request: int | None = None  # parked until the leader has assigned
        self.is_abandoned = False  # the connection of its parked request has closed

    def __repr__(self) -> str:
        return f"Member({self.member_id!r})"

    @property
    def has_joined(self) -> bool:
        return self.join_request is not None

    @property
    def is_waiting(self) -> bool:
        """It cannot send heartbeats now, and there is no need: its connection stands."""
        return (
            self.join_request is not None or self.sync_request is not None
        ) and not self.is_abandoned

    def metadata_for(self, protocol: str) -> bytes:
        for one in self.protocols:
            if one.name == protocol:
                return one.metadata
        raise InvariantViolation(f"{self!r} does not speak {protocol!r}")

    def vote(self, candidates: Collection[str]) -> str:
        """The one that it likes best."""
        for one in self.protocols:
            if one.name in candidates:
                return one.name
        raise InvariantViolation(f"{self!r} speaks none of {sorted(candidates)}")

    def to_store(self, protocol: str, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata_for(protocol),
            assignment=assignment,
        )


def from_store(stored: StoredMember, protocol: str) -> Member:
    """A member that came with the log: of what it speaks, only what was chosen is known."""
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=(GroupProtocol(protocol, stored.subscription),),
        assignment=stored.assignment,
    )


class Members:
    """The members in the order in which they came. An instance id belongs to one member."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}  # to the member id

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def find(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def find_static(self, instance_id: str) -> Member | None:
        member_id = self._by_instance.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def add(self, member: Member) -> None:
        if member.member_id in self._by_id or member.instance_id in self._by_instance:
            raise InvariantViolation(f"{member!r} is in the group already")
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member | None:
        member = self._by_id.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            del self._by_instance[member.instance_id]
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back under another id; its place among the others stays."""
        former = member.member_id
        member.member_id = member_id
        self._by_id = {
            (member_id if key == former else key): one for key, one in self._by_id.items()
        }
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member_id

    def become(self, stored: Iterable[StoredMember], protocol: str | None) -> None:
        """Be the members of a generation. Those who are here keep what the log does not say."""
        former, self._by_id, self._by_instance = self._by_id, {}, {}
        for one in stored:
            member = former.get(one.member_id) or from_store(one, protocol or "")
            member.assignment = one.assignment
            self.add(member)

    # All of them together

    @property
    def joined_count(self) -> int:
        return sum(member.has_joined for member in self._by_id.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest one decides."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def supports_any(self, names: Iterable[str]) -> bool:
        """Whether one of these is spoken by everyone."""
        return not self._common_protocols().isdisjoint(names) if self._by_id else any(names)

    def select_protocol(self) -> str:
        """Of what everyone speaks, what most like best."""
        candidates = self._common_protocols()
        votes = Counter(member.vote(candidates) for member in self._by_id.values())
        return votes.most_common(1)[0][0]

    def _common_protocols(self) -> set[str]:
        spoken = [{one.name for one in member.protocols} for member in self._by_id.values()]
        return set.intersection(*spoken)

    def subscriptions(self, protocol: str) -> Sequence[bytes]:
        return [member.metadata_for(protocol) for member in self._by_id.values()]
