"""What a share group has set, and where it has not, the broker: as the leader of a partition uses
it. A rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.config.broker_options import BrokerOptions
from moldau.config.group_options import GroupConfigOptions, value_in_group
from moldau.config.option import OffsetReset, ResetTo
from moldau.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from moldau.shares.rules.dead_letters import DeadLetterSettings
from moldau.shares.rules.in_flight import Limits

_READ_COMMITTED = "read_committed"
_READ_UNCOMMITTED = "read_uncommitted"


class ShareSettings(NamedTuple):
    """Of one group."""

    limits: Limits = Limits()
    read_committed: bool = False
    start: OffsetReset = OffsetReset(ResetTo.LATEST)  # in a partition that was not read yet
    may_renew: bool = True
    dead_letters: DeadLetterSettings = DeadLetterSettings()

    @property
    def lock_ms(self) -> int:
        return round(self.limits.lock_seconds * 1000)

    def first_timestamp_ms(self, now_ms: int) -> int:
        """From when on the group wants records: a time, or one of ListOffsets' special ones."""
        if self.start.to is ResetTo.DURATION:
            return now_ms - self.start.duration_ms
        return EARLIEST_TIMESTAMP if self.start.to is ResetTo.EARLIEST else LATEST_TIMESTAMP


def share_settings(group: Mapping[str, str], broker: BrokerOptions) -> ShareSettings:
    """Of a group that has set these texts."""
    options = GroupConfigOptions
    lock_ms = value_in_group(
        options.share_record_lock_duration_ms, group, broker.group_share_record_lock_duration_ms
    )
    isolation = value_in_group(options.share_isolation_level, group, _READ_UNCOMMITTED)
    return ShareSettings(
        Limits(
            value_in_group(
                options.share_partition_max_record_locks,
                group,
                broker.group_share_partition_max_record_locks,
            ),
            value_in_group(
                options.share_delivery_count_limit, group, broker.group_share_delivery_count_limit
            ),
            lock_ms / 1000,
        ),
        isolation == _READ_COMMITTED,
        value_in_group(options.share_auto_offset_reset, group, OffsetReset(ResetTo.LATEST)),
        value_in_group(options.share_renew_acknowledge_enable, group, True),
        DeadLetterSettings(
            value_in_group(options.errors_deadletterqueue_topic_name, group, ""),
            value_in_group(options.errors_deadletterqueue_copy_record_enable, group, False),
        ),
    )
