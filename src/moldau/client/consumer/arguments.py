"""From the arguments of a consumer to its core. The same for both faces."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from moldau.client.consumer.delegate import ConsumerDelegate, ListenerInvocation, RebalanceListener
from moldau.client.consumer.rules.assignors import Assignor, require_assignor
from moldau.client.consumer.rules.fetch_buffer import (
    ConsumerRecord,
    Decoding,
    GivenDeserializer,
    require_deserializers,
)
from moldau.client.consumer.rules.machine import ConsumerMachine
from moldau.client.consumer.rules.offset_manager import CommitMode
from moldau.client.consumer.rules.rebalance_listener import RebalanceEvent
from moldau.client.rules.arguments import (
    require_by_partition,
    require_function,
    require_kind,
    require_list,
    require_partitions,
    require_whole,
    wrong_type,
)
from moldau.client.rules.offsets import GroupOffset
from moldau.clock import Clock
from moldau.config.client_options import ConsumerOptions
from moldau.errors import ConfigurationError, NotAssignedError
from moldau.model import TopicPartition
from moldau.net.port import Network

CLOSE_SECONDS = 30.0
"""How long closing may take unless told otherwise, as in Kafka."""

GivenOffsets = (
    Mapping[TopicPartition, int | GroupOffset] | ConsumerRecord | Iterable[ConsumerRecord] | None
)
"""What can be committed: offsets to be read next, or records that were dealt with."""


def make_delegate(
    bootstrap: str,
    keywords: Mapping[str, object],
    *,
    group: str | None,
    commit: str | None,
    assignors: Sequence[str | Assignor] | None,
    key_deserializer: GivenDeserializer | None,
    value_deserializer: GivenDeserializer | None,
    listeners: Mapping[RebalanceEvent, RebalanceListener | None],
    network: Network | None,
    clock: Clock | None,
    random: Random | None,
) -> ConsumerDelegate:
    """From what a consumer was given beside the address."""
    options = ConsumerOptions.read(_convert_durations(keywords))
    require_deserializers(key_deserializer, value_deserializer)
    for event, listener in listeners.items():
        require_function(listener, f"on_{event.name.lower()}", example="lambda partitions: …")
    return ConsumerDelegate(
        bootstrap,
        options,
        group_id=_choose_group(group, options),
        commit_mode=_choose_commit_mode(commit, options),
        assignors=_choose_assignors(assignors, options),
        listeners={event: one for event, one in listeners.items() if one is not None},
        decoding=Decoding(options.check_crcs, key_deserializer, value_deserializer),
        network=network,
        clock=clock,
        random=random,
    )


def _convert_durations(keywords: Mapping[str, object]) -> Mapping[str, object]:
    """Values that are nicer in Python than as text."""
    reset = keywords.get("auto_offset_reset")
    if not isinstance(reset, timedelta):
        return keywords
    return {**keywords, "auto_offset_reset": f"by_duration:PT{reset.total_seconds():.3f}S"}


def _choose_group(group: str | None, options: ConsumerOptions) -> str | None:
    if group is not None and options.group_id is not None and group != options.group_id:
        raise ConfigurationError(f"group={group!r} and group_id={options.group_id!r} contradict")
    if group is not None:
        require_kind(group, str, "group", "its name, like 'billing'")
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
    if isinstance(chosen, str) or not isinstance(chosen, Iterable):
        raise wrong_type("assignors", "a list, like ['range']", chosen)
    if not chosen:
        raise ConfigurationError("a consumer needs at least one assignor")
    return [require_assignor(one) for one in chosen]


def read_offsets(given: GivenOffsets) -> dict[TopicPartition, GroupOffset] | None:
    """Offsets to commit; None stands for the positions of all partitions."""
    if given is None:
        return None
    if isinstance(given, ConsumerRecord):
        return _behind((given,))
    if isinstance(given, Mapping):
        by_partition = require_by_partition(given)
        return {one: _as_group_offset(offset) for one, offset in by_partition.items()}
    return _behind(require_list(given, ConsumerRecord, "records, or a mapping of offsets"))


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
    number = require_whole(found.offset, "offset", "a number")
    if number < 0:
        raise ConfigurationError(f"{number} is no offset to commit")
    return replace(found, offset=number)


def read_time_ms(time: int | datetime) -> int:
    """Milliseconds since 1970. A datetime without a zone is local time, as everywhere in Python."""
    found = round(time.timestamp() * 1000) if isinstance(time, datetime) else time
    time_ms = require_whole(found, "time", "milliseconds since 1970, or a datetime")
    if time_ms < 0:
        raise ConfigurationError(f"{time} is before 1970")
    return time_ms


def partitions_or_all(
    given: Collection[TopicPartition] | TopicPartition | None, machine: ConsumerMachine
) -> list[TopicPartition]:
    """What was named, or all that is assigned; each of them has to be assigned."""
    if given is None:
        return sorted(machine.subscriptions.partitions)
    some = (given,) if isinstance(given, TopicPartition) else given
    return [machine.subscriptions.require(one).partition for one in require_partitions(some)]


def partitions_to_seek(
    given: Collection[TopicPartition] | TopicPartition | None, machine: ConsumerMachine
) -> list[TopicPartition]:
    """As `partitions_or_all`; raises where there would be nothing to seek in, and would be later.

    A member of a group may have no partitions for good reasons. Without a group they are only not
    known yet, and whoever seeks before would read from where they did not want to.
    """
    found = partitions_or_all(given, machine)
    if given is None and not found and machine.membership is None:
        raise NotAssignedError(
            "the partitions are not known yet, so there is nothing to seek in: poll first, or "
            "assign() partitions instead of topics, or seek in on_assigned"
        )
    return found


async def call_inline(call: ListenerInvocation) -> None:
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
