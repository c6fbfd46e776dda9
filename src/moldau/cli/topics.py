"""`moldau topics`: creates, lists, describes, alters, trims, deletes and branches topics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from moldau.cli.offset_target import parse_timestamp, parse_topic
from moldau.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    argument,
    flag,
    option,
    parse_settings,
)
from moldau.cli.output import ask, can_ask, confirm, note, print_document, print_table
from moldau.cli.session import end_with, report_deleted, with_admin
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.offsets import plan_trim
from moldau.client.admin.values import (
    BROKER_DEFAULT,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    CreatedTopic,
    NewTopic,
    OffsetSpec,
)
from moldau.client.rules.cluster_metadata import PartitionMetadata
from moldau.client.rules.offsets import AtOffset, AtTime, BeforeEnd, PlannedReset, Start
from moldau.config.topic_options import SUSPENDED
from moldau.errors import InvalidConfigError, KafkaError, TopicExistsError, UnknownTopicError
from moldau.model import BRANCH_OF, TopicPartition, format_uuid
from moldau.ops.cluster_view import TopicDescription, describe_topics
from moldau.ops.formatting import parse_duration_ms, plural


def list_topics(
    internal: Annotated[bool, flag("--internal", "Show internal topics, too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics."""
    found = with_admin(bootstrap, lambda admin: admin.list_topics())
    topics = [found[name] for name in sorted(found) if internal or not found[name].is_internal]
    if as_json:
        print_document(
            [
                {
                    "topic": topic.name,
                    "topic_id": format_uuid(topic.topic_id) if topic.topic_id else None,
                    "partitions": len(topic.partitions),
                    "replication_factor": _replication_factor(topic.partitions),
                    "internal": topic.is_internal,
                }
                for topic in topics
            ]
        )
    elif topics:
        columns = "topic", ">partitions", ">replication"
        rows = [
            (topic.name, str(len(topic.partitions)), str(_replication_factor(topic.partitions)))
            for topic in topics
        ]
        print_table(columns, rows)
    else:
        note("there are no topics; make one with `moldau topics create NAME`")


def _replication_factor(partitions: Sequence[PartitionMetadata]) -> int:
    """Partitions under reassignment may have more replicas than the others."""
    return min((len(partition.replicas) for partition in partitions), default=0)


def create(
    names: Annotated[list[str], argument("NAME...", "The topics' names.")],
    partitions: Annotated[
        int | None, option("N", "How many partitions.", default="the broker's own", min=1)
    ] = None,
    replication_factor: Annotated[
        int | None, option("N", "How many copies of each.", default="the broker's own", min=1)
    ] = None,
    config: Annotated[
        list[str] | None, option("KEY=VALUE", "A setting of the topics; repeat for more.")
    ] = None,
    if_not_exists: Annotated[
        bool, flag("--if-not-exists", "Succeed when a topic is there already.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create topics, all alike.

    \b
    For example:
    moldau topics create clicks orders --partitions 6 --config segment.ms=60000
    """
    topics = [
        NewTopic(
            name=name,
            partitions=partitions or BROKER_DEFAULT,
            replication_factor=replication_factor or BROKER_DEFAULT,
            configs=parse_settings(config or (), "--config"),
        )
        for name in dict.fromkeys(names)
    ]
    answers = with_admin(bootstrap, lambda admin: admin.create_topics(topics))
    refused = [
        answer
        for answer in answers.values()
        if isinstance(answer, KafkaError)
        and not (if_not_exists and isinstance(answer, TopicExistsError))
    ]
    done = {
        topic.name: answers[topic.name] for topic in topics if answers[topic.name] not in refused
    }
    if as_json:
        documents = _to_documents(done)
        if done:  # one topic is one object
            print_document(documents if len(topics) > 1 else documents[0])
    else:
        for name, answer in done.items():
            if isinstance(answer, KafkaError):
                typer.echo(f"topic {name} exists already")
            else:
                size = _size(answer.partitions, answer.replication_factor)
                typer.echo(f"created topic {name}{size}")
    end_with(refused)


def _to_documents(done: Mapping[str, CreatedTopic | KafkaError]) -> list[dict[str, object]]:
    documents: list[dict[str, object]] = []
    for name, answer in done.items():
        document: dict[str, object] = {
            "topic": name,
            "created": not isinstance(answer, KafkaError),
        }
        if not isinstance(answer, KafkaError):
            document["topic_id"] = format_uuid(answer.topic_id) if answer.topic_id else None
            document["partitions"] = answer.partitions
            document["replication_factor"] = answer.replication_factor
        documents.append(document)
    return documents


def _size(partitions: int, replication_factor: int) -> str:
    if partitions < 1:  # an old broker does not say
        return ""
    count = "1 partition" if partitions == 1 else f"{partitions} partitions"
    return f" with {count}, replication factor {replication_factor}"


def describe(
    names: Annotated[
        list[str] | None, argument("NAME...", "The topics.", default="all but internal ones")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show partitions, leaders, replicas, offsets, and settings that are not the default."""
    answers = with_admin(bootstrap, lambda admin: describe_topics(admin, names or None))
    topics = [one for one in answers if not isinstance(one, KafkaError)]
    if as_json:
        print_document([topic.to_document() for topic in topics])
    else:
        for number, topic in enumerate(topics):
            if number:
                typer.echo()
            _print_topic(topic)
        if not answers:
            note("there are no topics; make one with `moldau topics create NAME`")
    end_with(one for one in answers if isinstance(one, KafkaError))


def _print_topic(topic: TopicDescription) -> None:
    typer.secho(topic.name, bold=True)
    if topic.topic_id is not None:
        typer.echo(f"  id      {format_uuid(topic.topic_id)}")
    for number, (name, value) in enumerate(topic.configs.items()):
        typer.echo(f"  {'' if number else 'config':<8}{name}={value}")
    if topic.configs.get(SUSPENDED) == "true":
        typer.echo(
            "  note    nothing in it is deleted or compacted until its settings are confirmed:"
        )
        typer.echo(
            f"          `moldau configs alter --topic {topic.name}` with --set retention.ms=..."
        )
        typer.echo("          or cleanup.policy=..., or --unset cleanup.suspended for the defaults")
    with_eligible = topic.has_eligible
    columns = (
        ">partition",
        ">leader",
        "replicas",
        "in sync",
        *(("eligible", "last known") if with_eligible else ()),
        ">earliest",
        ">latest",
    )
    rows = [partition.to_row(with_eligible=with_eligible) for partition in topic.partitions]
    print_table(columns, rows, indent=2)


def alter(
    names: Annotated[list[str], argument("NAME...", "The topics.")],
    partitions: Annotated[
        int | None,
        option("N", "The new number of partitions; it can only grow.", default="as it is", min=1),
    ] = None,
    config: Annotated[list[str] | None, option("KEY=VALUE", "Set this; repeat for more.")] = None,
    delete_config: Annotated[
        list[str] | None, option("KEY", "Go back to the default; repeat for more.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change settings of topics, or add partitions to them. What is not named stays.

    With more partitions keys may move: which partition a key goes to depends on their number. What
    is in the topic stays where it is.

    \b
    For example:
    moldau topics alter clicks --config segment.ms=60000
    moldau topics alter clicks orders --partitions 12
    """
    settings = parse_settings(config or (), "--config")
    changes = [ConfigChange(name=name, value=value) for name, value in settings.items()]
    changes += [
        ConfigChange(name=name, operation=ConfigOperation.DELETE) for name in delete_config or ()
    ]
    if partitions is None and not changes:
        raise typer.BadParameter(
            "name what to change with --config, --delete-config or --partitions",
            param_hint="--config",
        )

    async def work(admin: AsyncAdmin) -> dict[str, KafkaError | None]:
        """Settings first: where those are refused, nothing is changed."""
        refused: dict[str, KafkaError | None] = dict.fromkeys(names)
        if changes:
            wanted = {ConfigResource.topic(name): changes for name in names}
            answers = await admin.alter_configs(wanted)
            refused |= {one.name: error for one, error in answers.items()}
        growing = [name for name in names if refused[name] is None]
        if partitions is not None and growing:
            refused |= await admin.create_partitions(dict.fromkeys(growing, partitions))
        return refused

    refused = with_admin(bootstrap, work)
    altered = [name for name in names if refused[name] is None]
    if as_json:
        done = {"set": settings, "unset": delete_config or [], "partitions": partitions}
        documents = [{"topic": name, **done} for name in altered]
        if altered:  # one topic is one object
            print_document(documents if len(names) > 1 else documents[0])
    else:
        told = [f"set {key}={value}" for key, value in settings.items()]
        told += [f"unset {key}" for key in delete_config or ()]
        for name in altered:
            if told:
                typer.echo(f"topic {name}: {', '.join(told)}")
            if partitions is not None:
                typer.echo(f"topic {name} has {partitions} partitions now")
    end_with(refused.values())


def trim(
    topics: Annotated[
        list[str], argument("TOPIC[:P,P]...", "Topics, or some of their partitions only.")
    ],
    before_offset: Annotated[
        int | None, option("N", "What is before this offset goes.", min=0)
    ] = None,
    before_time: Annotated[
        str | None, option("MS|ISO", "What is before the first record of this time goes.")
    ] = None,
    older_than: Annotated[
        str | None, option("DURATION", "What is so old goes: 90s, 12h, 7d.")
    ] = None,
    keep_last: Annotated[
        int | None, option("N", "All but the last N of each partition.", min=1)
    ] = None,
    everything: Annotated[bool, flag("--all", "All records go; the topics stay.")] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would go; change nothing.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest records of topics (DeleteRecords), on all replicas, for good.

    Shows what goes, and asks first.

    \b
    For example:
    moldau topics trim clicks --older-than 7d --dry-run
    moldau topics trim clicks:0,3 --before-offset 1200 --yes
    """
    target = _choose_target(before_offset, before_time, older_than, keep_last, everything)
    choices = [parse_topic(text) for text in topics]
    if not (dry_run or yes) and (as_json or not can_ask()):
        raise typer.BadParameter(
            "nobody can be asked here: give --yes, or --dry-run to see what would go",
            param_hint="--yes",
        )
    planned = with_admin(bootstrap, lambda admin: plan_trim(admin, choices, target))
    going = [one for one in planned if _count(one)]
    answers: Mapping[TopicPartition, int | KafkaError] = {}
    if not as_json:
        _print_trimmed(planned)
        if not going:
            note("no record is before that; nothing is deleted")
        elif not dry_run and not yes:
            ask("Delete them for good?")
    if going and not dry_run:
        before = {one.partition: one.after for one in going}
        answers = with_admin(bootstrap, lambda admin: admin.delete_records(before))
    if as_json:
        _print_trimmed_document(planned, answers, dry_run=dry_run)
    elif answers:
        gone = [one for one in going if not isinstance(answers[one.partition], KafkaError)]
        offsets, of = plural(sum(map(_count, gone)), "offset"), plural(len(gone), "partition")
        typer.echo(f"deleted {offsets} of {of}")
    end_with(error for error in answers.values() if isinstance(error, KafkaError))


def _choose_target(
    before_offset: int | None,
    before_time: str | None,
    older_than: str | None,
    keep_last: int | None,
    everything: bool,
) -> Start:
    targets: list[Start] = []
    if before_offset is not None:
        targets.append(AtOffset(before_offset))
    if before_time is not None:
        targets.append(AtTime(parse_timestamp(before_time)))
    if older_than is not None:
        now_ms = time.time_ns() // 1_000_000
        targets.append(AtTime(max(0, now_ms - parse_duration_ms(older_than))))
    if keep_last is not None:
        targets.append(BeforeEnd(keep_last))
    if everything:
        targets.append(BeforeEnd(0))
    if len(targets) != 1:
        raise typer.BadParameter(
            "choose one of --before-offset, --before-time, --older-than, --keep-last and --all",
            param_hint="--before-offset",
        )
    return targets[0]


def _count(row: PlannedReset) -> int:
    """How many offsets go. Records are fewer where transactions ended or the log was compacted."""
    return row.after - (row.before or 0)


def _print_trimmed(planned: Sequence[PlannedReset]) -> None:
    titles = ("partition", "begins at", "will begin at", "goes")
    rows = [
        (
            row.partition.topic,
            str(row.partition.partition),
            str(row.before),
            str(row.after),
            f"{_count(row):,}",
        )
        for row in planned
    ]
    print_table(["topic", *(f">{title}" for title in titles)], rows)


def _print_trimmed_document(
    planned: Sequence[PlannedReset],
    answers: Mapping[TopicPartition, int | KafkaError],
    *,
    dry_run: bool,
) -> None:
    def begins_at(row: PlannedReset) -> int | None:
        """Where the broker says that it begins now; as planned where nothing was asked of it."""
        answer = answers.get(row.partition)
        if answer is None:
            return row.after
        return answer if isinstance(answer, int) else None

    print_document(
        {
            "dry_run": dry_run,
            "partitions": [
                {
                    "topic": row.partition.topic,
                    "partition": row.partition.partition,
                    "before": row.before,
                    "after": begins_at(row),
                }
                for row in planned
            ],
        }
    )


def delete(
    names: Annotated[list[str], argument("NAME...", "The topics.")],
    if_exists: Annotated[bool, flag("--if-exists", "Succeed when a topic is not there.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records. Asks first at a terminal."""
    question = f"Delete {', '.join(names)} with all records?"
    confirm(question, yes=yes, as_json=as_json)
    answers = with_admin(bootstrap, lambda admin: admin.delete_topics(names))
    forgiven = UnknownTopicError if if_exists else None
    report_deleted(names, answers, forgiven=forgiven, as_json=as_json)


def branch(
    source: Annotated[str, argument("SOURCE", "A topic that is there.")],
    target: Annotated[str, argument("NEW", "The topic to be made.")],
    config: Annotated[
        list[str] | None,
        option("KEY=VALUE", "A setting in which it differs from the source; repeat for more."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Make a topic with all that is in another one, without copying it.

    Closed segments are linked, so that both topics share them until one deletes or compacts them;
    what is written from then on is each one's own. For replaying real data in a test. Both topics
    serve meanwhile. It is for clusters of Moldau.

    \b
    For example:
    moldau topics branch orders orders-trial --config retention.ms=-1
    """
    settings = parse_settings(config or (), "--config")
    before, starts, ends = with_admin(
        bootstrap, lambda admin: _branch(admin, source, target, settings)
    )
    behind = {number: end for number, end in before.items() if ends[number] < end}
    if as_json:
        partitions = [
            {"partition": number, "start_offset": starts[number], "end_offset": ends[number]}
            for number in sorted(ends)
        ]
        print_document({"topic": target, "branch_of": source, "partitions": partitions})
    else:
        count = "1 partition" if len(ends) == 1 else f"{len(ends)} partitions"
        offsets = sum(ends[number] - starts[number] for number in ends)
        typer.echo(f"{target} has {count} and {offsets:,} offsets of {source}")
    for number, end in sorted(behind.items()):
        typer.echo(
            f"partition {number} ends at {ends[number]}, and {source} ended at {end} when it was "
            f"asked for: a leader was lost meanwhile. Delete {target} and branch again",
            err=True,
        )
    if behind:
        raise typer.Exit(1)


async def _branch(
    admin: AsyncAdmin, source: str, target: str, settings: Mapping[str, str]
) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Where the source ended before, and where the branch starts and ends, by partition."""
    found = await admin.describe_topics([source])
    topic = found[source]
    if isinstance(topic, KafkaError):
        raise topic
    numbers = [row.index for row in topic.partitions]
    if not numbers:
        raise UnknownTopicError(f"there is no topic {source!r}")
    before = await _offsets(admin, source, numbers, OffsetSpec.LATEST)
    new = NewTopic(name=target, configs={**settings, BRANCH_OF: source})
    answer = (await admin.create_topics([new]))[target]
    if isinstance(answer, InvalidConfigError) and BRANCH_OF in str(answer):
        raise InvalidConfigError(
            "these brokers make no branches: that is for clusters of Moldau, and Kafka has none"
        )
    if isinstance(answer, KafkaError):
        raise answer
    starts = await _offsets(admin, target, numbers, OffsetSpec.EARLIEST)
    return before, starts, await _offsets(admin, target, numbers, OffsetSpec.LATEST)


async def _offsets(admin: AsyncAdmin, topic: str, numbers: list[int], spec: int) -> dict[int, int]:
    wanted = {TopicPartition(topic, number): int(spec) for number in numbers}
    found = {}
    for key, listed in (await admin.list_offsets(wanted, read_committed=True)).items():
        if isinstance(listed, KafkaError):
            raise listed
        found[key.partition] = listed.offset
    return found
