"""From the arguments of a consumer to its core. The same for both faces."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from moldau.client.consumer_core import ConsumerCore
from moldau.client.group_values import GroupOffset
from moldau.client.rules.assignors import Assignor, require_assignor
from moldau.client.rules.commits import CommitMode
from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.client.rules.delivery import Decoding, Deserializer
from moldau.client.rules.hand_over import RebalanceEvent
from moldau.client.user_calls import RebalanceListener, UserCall
from moldau.clock import Clock
from moldau.config.client_consumer_options import ConsumerOptions
from moldau.errors import ConfigurationError, NotAssignedError
from moldau.model import TopicPartition
from moldau.net.port import Network

CLOSE_SECONDS = 30.0
"""How long closing may take unless told otherwise, as in Kafka."""

GivenOffsets = (
    Mapping[TopicPartition, int | GroupOffset] | ConsumerRecord | Iterable[ConsumerRecord] | None
)
"""What can be committed: offsets to be read next, or records that were dealt with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerArguments:
    """What a consumer was given beside the address."""

    group: str | None = None
    commit: str | None = None
    assignors: Sequence[str | Assignor] | None = None
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    on_assigned: RebalanceListener | None = None
    on_revoked: RebalanceListener | None = None
    on_lost: RebalanceListener | None = None


def make_core(
    bootstrap: str,
    arguments: ConsumerArguments,
    keywords: Mapping[str, object],
    *,
    network: Network | None = None,
    clock: Clock | None = None,
    random: Random | None = None,
) -> ConsumerCore:
    options = ConsumerOptions.read(_plain(keywords))
    return ConsumerCore(
        bootstrap,
        options,
        group_id=_choose_group(arguments.group, options),
        commit_mode=_choose_commit_mode(arguments.commit, options),
        assignors=_choose_assignors(arguments.assignors, options),
        listeners=_listeners(arguments),
        decoding=Decoding(
            options.check_crcs, arguments.key_deserializer, arguments.value_deserializer
        ),
        network=network,
        clock=clock,
        random=random,
    )


def _listeners(arguments: ConsumerArguments) -> dict[RebalanceEvent, RebalanceListener]:
    given = {
        RebalanceEvent.ASSIGNED: arguments.on_assigned,
        RebalanceEvent.REVOKED: arguments.on_revoked,
        RebalanceEvent.LOST: arguments.on_lost,
    }
    return {event: listener for event, listener in given.items() if listener is not None}


def _plain(keywords: Mapping[str, object]) -> Mapping[str, object]:
    """Values that are nicer in Python than as text."""
    reset = keywords.get("auto_offset_reset")
    if not isinstance(reset, timedelta):
        return keywords
    return {**keywords, "auto_offset_reset": f"by_duration:PT{reset.total_seconds():.3f}S"}


def _choose_group(group: str | None, options: ConsumerOptions) -> str | None:
    if group is not None and options.group_id is not None and group != options.group_id:
        raise ConfigurationError(f"group={group!r} and group_id={options.group_id!r} contradict")
    chosen = group if group is not None else options.group_id
    if chosen == "":
        raise ConfigurationError("the group's name is empty; leave it out to have no group")
    return chosen


def _choose_commit_mode(word: str | None, options: ConsumerOptions) -> CommitMode:
    if word is None:
        return CommitMode.AFTER if options.enable_auto_commit else CommitMode.MANUAL
    mode = CommitMode.parse(word)
    is_automatic = mode is not CommitMode.MANUAL
    if "enable_auto_commit" in options.given and options.enable_auto_commit != is_automatic:
        raise ConfigurationError(f"commit={word!r} and enable.auto.commit contradict each other")
    return mode


def _choose_assignors(
    given: Sequence[str | Assignor] | None, options: ConsumerOptions
) -> list[Assignor]:
    if given is not None and options.group_protocol != "classic":
        raise ConfigurationError(
            "assignors mean nothing with group.protocol=consumer: the broker assigns; see "
            "group.remote.assignor"
        )
    chosen = options.partition_assignment_strategy if given is None else given
    if not chosen:
        raise ConfigurationError("a consumer needs at least one assignor")
    return [require_assignor(one) if isinstance(one, str) else one for one in chosen]


def read_offsets(given: GivenOffsets) -> dict[TopicPartition, GroupOffset] | None:
    """Offsets to commit; None stands for the positions of all partitions."""
    if given is None:
        return None
    if isinstance(given, ConsumerRecord):
        return _behind((given,))
    if isinstance(given, Mapping):
        return {
            TopicPartition(*partition): _as_group_offset(offset)
            for partition, offset in given.items()
        }
    return _behind(given)


def _behind(records: Iterable[ConsumerRecord]) -> dict[TopicPartition, GroupOffset]:
    found: dict[TopicPartition, GroupOffset] = {}
    for record in records:
        partition = TopicPartition(record.topic, record.partition)
        known = found.get(partition)
        if known is None or record.offset >= known.offset:
            found[partition] = GroupOffset(
                offset=record.offset + 1, leader_epoch=record.leader_epoch
            )
    return found


def _as_group_offset(offset: int | GroupOffset) -> GroupOffset:
    found = offset if isinstance(offset, GroupOffset) else GroupOffset(offset=offset)
    if found.offset < 0:
        raise ConfigurationError(f"{found.offset} is no offset to commit")
    return found


def read_time_ms(time: int | datetime) -> int:
    """Milliseconds since 1970. A datetime without a zone is local time, as everywhere in Python."""
    found = round(time.timestamp() * 1000) if isinstance(time, datetime) else time
    if found < 0:
        raise ConfigurationError(f"{time} is before 1970")
    return found


def partitions_or_all(
    given: Collection[TopicPartition] | TopicPartition | None, core: ConsumerCore
) -> list[TopicPartition]:
    """What was named, or all that is assigned; each of them has to be assigned."""
    if given is None:
        return sorted(core.table.partitions)
    some = (given,) if isinstance(given, TopicPartition) else given
    return [core.table.require(TopicPartition(*one)).partition for one in some]


def partitions_to_seek(
    given: Collection[TopicPartition] | TopicPartition | None, core: ConsumerCore
) -> list[TopicPartition]:
    """As `partitions_or_all`; raises where there would be nothing to seek in, and would be later.

    A member of a group may have no partitions for good reasons. Without a group they are only not
    known yet, and whoever seeks before would read from where they did not want to.
    """
    found = partitions_or_all(given, core)
    if given is None and not found and not core.has_group:
        raise NotAssignedError(
            "the partitions are not known yet, so there is nothing to seek in: poll first, or "
            "assign() partitions instead of topics, or seek in on_assigned"
        )
    return found


async def call_inline(call: UserCall) -> None:
    """Make a call of the program's function on the loop, and await what it gives back."""
    try:
        result = call.listener(call.partitions)
        if inspect.isawaitable(result):
            await result
    except Exception as error:  # noqa: BLE001 it is the program's, which gets it back
        call.finish(error)
    except BaseException:
        call.finish(RuntimeError("the call was interrupted"))
        raise
    else:
        call.finish(None)
