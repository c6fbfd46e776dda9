"""The options that bound groups, as values: the broker's, and what a group has of its own. Rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from moldau.config.group_options import GroupConfigOptions, value_in_group


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
    # Of share groups
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_max_size: int = 200
    share_assignors: tuple[str, ...] = ("simple",)

    def of_group(self, settings: Mapping[str, str]) -> GroupLimits:
        """Those of a group that has set something itself; asked with every event."""
        if not settings:
            return self
        return replace(
            self,
            consumer_session_timeout_ms=value_in_group(
                GroupConfigOptions.consumer_session_timeout_ms,
                settings,
                self.consumer_session_timeout_ms,
            ),
            consumer_heartbeat_interval_ms=value_in_group(
                GroupConfigOptions.consumer_heartbeat_interval_ms,
                settings,
                self.consumer_heartbeat_interval_ms,
            ),
            share_session_timeout_ms=value_in_group(
                GroupConfigOptions.share_session_timeout_ms,
                settings,
                self.share_session_timeout_ms,
            ),
            share_heartbeat_interval_ms=value_in_group(
                GroupConfigOptions.share_heartbeat_interval_ms,
                settings,
                self.share_heartbeat_interval_ms,
            ),
        )

    @property
    def allows_upgrade(self) -> bool:
        """Whether members of the new protocol may join a group of classic ones."""
        return self.consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def allows_downgrade(self) -> bool:
        """Whether a group that only classic members are left in is theirs again."""
        return self.consumer_migration_policy in ("bidirectional", "downgrade")
