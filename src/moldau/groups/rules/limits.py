"""The broker's options that bound groups, as values. A rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Made when the options change, not per request. The defaults are the options' own."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = (1 << 31) - 1
    initial_rebalance_delay_ms: int = 0
    member_metadata_max_bytes: int = 1_048_588
    """More could not be logged: the record of a generation has the metadata of all its members,
    that of a member of a consumer group the names it subscribes to."""
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    # Of consumer groups
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = (1 << 31) - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is for groups whose members do not mind."""
    consumer_migration_policy: str = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """Whether members of the new protocol may join a group of classic ones."""
        return self.consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def allows_downgrade(self) -> bool:
        """Whether a group that only classic members are left in is theirs again."""
        return self.consumer_migration_policy in ("bidirectional", "downgrade")
