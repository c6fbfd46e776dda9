"""The kinds of groups that commit offsets: all but share groups. A rule."""

from __future__ import annotations

from typing import TypeAlias

from moldau.groups.rules.consumer_group import ConsumerGroup
from moldau.groups.rules.group import Group
from moldau.groups.rules.streams_group import StreamsGroup

OffsetGroup: TypeAlias = Group | ConsumerGroup | StreamsGroup
