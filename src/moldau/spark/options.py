"""The options of `format("moldau")`: those of Spark's Kafka source and sink, and a few more.

Those of reading are declared once; parsing, checks and the table in the documentation follow.
`python -m moldau.spark.options` prints the table, `… options docs/spark.md` puts it in its place.
A test fails while the committed page differs. Spark gives names in lower case and values as texts.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from re import Pattern
from typing import Final, Self

from moldau.config.client_options import ConsumerOptions, ProducerOptions
from moldau.config.option import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    STRING,
    AnyOption,
    Importance,
    Kind,
    OptionSet,
    OptionType,
    at_least,
    one_of,
    option,
    optional,
    suggest,
)
from moldau.errors import ConfigurationError, DataLossError
from moldau.spark.rules.java_patterns import translate_java_pattern
from moldau.spark.rules.offset_ranges import DATA_LOSS_ADVICE, TriggerLimits
from moldau.spark.rules.offsets import (
    EARLIEST_OFFSET,
    Bound,
    NamedBound,
    SpecificOffsets,
    SpecificTimestamps,
    parse_offsets,
    parse_partitions,
)

_log = logging.getLogger("moldau.spark")

KAFKA_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
_CLIENT_ID: Final = "moldau-spark"

_REFUSED_OF_KAFKA: Final[Mapping[str, str]] = {
    "auto.offset.reset": "has no effect on a query; set startingOffsets",
    "key.deserializer": "is not taken: keys come as binary; cast or decode the column",
    "value.deserializer": "is not taken: values come as binary; cast or decode the column",
    "enable.auto.commit": "is not taken: with groupId a query commits what it has completed",
    "interceptor.classes": "is not taken: there is no Java in the client",
}
"""What Spark's own source refuses, too, and for much the same reasons."""

_DURATION = re.compile(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*\Z", re.IGNORECASE)
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

_REFUSED: Final[Mapping[str, str]] = {
    "path": "load() takes no path: the option subscribe names the topics",
    "topic": "topic is an option of writing; to read, name topics with subscribe",
    "bootstrap.servers": f"bootstrap.servers is called {BOOTSTRAP} here",
}


def _parse_duration_ms(text: str) -> int:
    found = _DURATION.match(text)
    if found is None:
        raise ValueError("is no duration like 30s, 15m or 2h")
    return int(found[1]) * _UNITS_MS[(found[2] or "ms").lower()]


def _parse_pattern(text: str) -> Pattern[str]:
    translated = translate_java_pattern(text)
    try:
        return re.compile(translated)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None


def _parse_starting(text: str) -> NamedBound | SpecificOffsets:
    return _parse_bound(text, "is neither earliest, latest, group nor JSON of offsets", *NamedBound)


def _parse_ending(text: str) -> NamedBound | SpecificOffsets:
    if text.strip().lower() == NamedBound.EARLIEST.value:
        raise ValueError("would read nothing; it can be latest, or JSON of offsets")
    found = _parse_bound(text, "is neither latest nor JSON of offsets", NamedBound.LATEST)
    if isinstance(found, SpecificOffsets) and EARLIEST_OFFSET in found.offsets.values():
        raise ValueError("has -2 (earliest), where reading cannot end")
    return found


def _parse_bound(text: str, fault: str, *places: NamedBound) -> NamedBound | SpecificOffsets:
    word = text.strip().lower()
    for place in places:
        if word == place.value:
            return place
    if not word.startswith("{"):
        raise ValueError(fault)
    return SpecificOffsets(offsets=parse_offsets(text, lowest=EARLIEST_OFFSET))


_OFFSETS_FROM: Final = Kind(OptionType.STRING, _parse_starting)
_OFFSETS_TO: Final = Kind(OptionType.STRING, _parse_ending)
_TIMES: Final = Kind(OptionType.STRING, parse_offsets)
_ASSIGNMENT: Final = Kind(OptionType.STRING, parse_partitions)
_PATTERN: Final = Kind(OptionType.STRING, _parse_pattern)
_DURATION_MS: Final = Kind(OptionType.STRING, _parse_duration_ms)


class SourceOptions(OptionSet):
    """The options of one query. `bootstrap` and `client` come from those that begin with kafka."""

    bootstrap: str
    client: ConsumerOptions

    subscribe = optional(
        "subscribe", LIST, "The topics to read, separated by commas.", importance=Importance.HIGH
    )
    subscribe_pattern = optional(
        "subscribePattern",
        _PATTERN,
        "A regular expression, as Java writes them; topics whose whole name matches are read, also "
        "those that are made while the query runs. What Python's expressions have no counterpart "
        "for (&& in classes, Unicode scripts) is refused.",
        importance=Importance.HIGH,
    )
    assign = optional(
        "assign",
        _ASSIGNMENT,
        'Single partitions, as JSON: {"clicks": [0, 1]}.',
        importance=Importance.HIGH,
    )
    starting_offsets = optional(
        "startingOffsets",
        _OFFSETS_FROM,
        "Where a new query begins: earliest, latest, group (where groupId has got to, and the "
        'beginning where it has committed nothing), or JSON: {"clicks": {"0": 23, "1": -2}} with '
        "-2 for the earliest and -1 for the latest offset. By default latest for a stream and "
        "earliest for a batch. A query with a checkpoint goes on from there, and partitions that "
        "are added later are read from their beginning.",
        importance=Importance.HIGH,
    )
    starting_timestamp = optional(
        "startingTimestamp",
        LONG,
        "Begin with the first record that is not older, in milliseconds since 1970, in every "
        "partition. Goes before startingOffsetsByTimestamp and startingOffsets.",
        at_least(0),
    )
    starting_offsets_by_timestamp = optional(
        "startingOffsetsByTimestamp",
        _TIMES,
        'The same with a time for each partition, as JSON: {"clicks": {"0": 1700000000000}}. Goes '
        "before startingOffsets.",
    )
    starting_strategy = option(
        "startingOffsetsByTimestampStrategy",
        STRING,
        "error",
        "What to do where no record is as late as the time asked for: error, or latest, which "
        "begins at the end.",
        one_of("error", "latest"),
    )
    ending_offsets = optional(
        "endingOffsets",
        _OFFSETS_TO,
        "Where a batch ends, exclusive: latest (the default), or JSON of offsets. Not for streams.",
        importance=Importance.HIGH,
    )
    ending_timestamp = optional(
        "endingTimestamp",
        LONG,
        "End before the first record that is not older, in milliseconds since 1970. Goes before "
        "endingOffsetsByTimestamp and endingOffsets. Not for streams.",
        at_least(0),
    )
    ending_offsets_by_timestamp = optional(
        "endingOffsetsByTimestamp",
        _TIMES,
        "The same with a time for each partition, as JSON. Goes before endingOffsets.",
    )
    fail_on_data_loss = option(
        "failOnDataLoss",
        BOOLEAN,
        True,
        "Whether a query fails when records were deleted before it could read them, or a topic "
        "was deleted, or deleted and recreated. If not, it logs a warning and goes on: in a "
        "recreated topic at the beginning. Gaps that compaction and transactions leave are no "
        "loss and are never taken for it.",
        importance=Importance.HIGH,
    )
    max_offsets_per_trigger = optional(
        "maxOffsetsPerTrigger",
        LONG,
        "How many offsets one batch of a stream has at most, shared over the partitions by how "
        "much waits in each.",
        at_least(1),
    )
    min_offsets_per_trigger = optional(
        "minOffsetsPerTrigger",
        LONG,
        "How many offsets have to wait before there is a new batch, unless maxTriggerDelay is "
        "over. The first batch of a run does not wait, nor does Trigger.AvailableNow.",
        at_least(1),
    )
    max_trigger_delay_ms = option(
        "maxTriggerDelay",
        _DURATION_MS,
        15 * 60_000,
        "How long minOffsetsPerTrigger may hold a batch back: 30s, 15m, 2h; a bare number is "
        "milliseconds.",
    )
    max_bytes_per_trigger = optional(
        "maxBytesPerTrigger",
        LONG,
        "About how many bytes one batch of a stream has at most, as they are stored, judged by "
        "the mean size of the records in each partition.",
        at_least(1),
    )
    min_partitions = optional(
        "minPartitions",
        INT,
        "Into how many tasks a batch is cut at least. By default each partition of a topic is "
        "one task.",
        at_least(1),
    )
    max_records_per_partition = optional(
        "maxRecordsPerPartition",
        LONG,
        "How many offsets one task reads at most; longer ranges are cut.",
        at_least(1),
    )
    min_records_per_partition = optional(
        "minRecordsPerPartition",
        LONG,
        "Partitions of topics are read by one task together, one after the other, until it has "
        "so many offsets: for many partitions with few records each, since a task takes some "
        "20 ms of CPU, whatever it reads. By default each is a task of its own.",
        at_least(1),
    )
    include_headers = option(
        "includeHeaders", BOOLEAN, False, "Whether there is a column with the records' headers."
    )
    group_id = optional(
        "groupId",
        STRING,
        "The consumer group to which a stream commits what it has completed, so that lag can be "
        "seen; also the group of startingOffsets=group. kafka.group.id says the same. A batch "
        "commits nothing.",
        importance=Importance.HIGH,
    )
    data_folder = optional(
        "dataFolder",
        STRING,
        "The broker's data folder (log.dirs), for jobs on the same machine: segments that are "
        "closed are read from its files instead of through the broker.",
    )
    fetch_offset_num_retries = optional(
        "fetchOffset.numRetries", INT, "How often to ask for offsets again.", ignored=True
    )
    fetch_offset_retry_interval_ms = optional(
        "fetchOffset.retryIntervalMs", LONG, "How long to wait before that.", ignored=True
    )
    poll_timeout_ms = optional(
        "kafkaConsumer.pollTimeoutMs", LONG, "How long one poll may take.", ignored=True
    )
    group_id_prefix = optional("groupIdPrefix", STRING, "How names of groups begin.", ignored=True)

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Take the options as Spark gives them; raises ConfigurationError with a message."""
        if not given:
            raise ConfigurationError(
                "Spark has given no options. It gives those of CREATE TABLE to no source in "
                "Python: use CREATE TEMPORARY VIEW … USING moldau OPTIONS (…), or say them in the "
                "query: SELECT … FROM a_table WITH ('kafka.bootstrap.servers' = '…', …)"
            )
        own = without_table_properties(given)
        kafka = {name: own.pop(name) for name in list(own) if name.startswith(KAFKA_PREFIX)}
        bootstrap = kafka.pop(BOOTSTRAP, "").strip()
        values = _parse_source_options(cls.declarations(), own)
        client = _read_client_options(kafka)
        values["group_id"] = values["group_id"] or client.group_id
        found = cls({**values, "bootstrap": bootstrap, "client": client})
        if not bootstrap:
            raise ConfigurationError(f"{BOOTSTRAP} is not set: where is a broker? HOST:PORT,…")
        found._require_one_choice_of_topics()
        found._require_group()
        return found

    @property
    def starting_bound(self) -> Bound | None:
        """The strongest of the options that say where to begin; None when none does."""
        if_none_latest = self.starting_strategy == "latest"
        if self.starting_timestamp is not None:
            return SpecificTimestamps(
                times_ms=self.starting_timestamp, if_none_latest=if_none_latest
            )
        if self.starting_offsets_by_timestamp is not None:
            times = self.starting_offsets_by_timestamp
            return SpecificTimestamps(times_ms=times, if_none_latest=if_none_latest)
        return self.starting_offsets

    @property
    def ending_bound(self) -> Bound:
        """Where a batch ends."""
        if self.ending_timestamp is not None:
            return SpecificTimestamps(times_ms=self.ending_timestamp)
        if self.ending_offsets_by_timestamp is not None:
            return SpecificTimestamps(times_ms=self.ending_offsets_by_timestamp)
        return self.ending_offsets or NamedBound.LATEST

    @property
    def limits(self) -> TriggerLimits:
        return TriggerLimits(
            max_offsets=self.max_offsets_per_trigger,
            min_offsets=self.min_offsets_per_trigger,
            max_delay_ms=self.max_trigger_delay_ms,
            max_bytes=self.max_bytes_per_trigger,
        )

    @property
    def read_committed(self) -> bool:
        return self.client.isolation_level == "read_committed"

    def report_losses(self, losses: Sequence[str]) -> None:
        """Raise DataLossError; only log warnings where failOnDataLoss is off."""
        if losses and self.fail_on_data_loss:
            raise DataLossError(f"{'; '.join(losses)}. {DATA_LOSS_ADVICE}")
        for message in losses:
            _log.warning("%s; reading goes on with what is there", message)

    def require_batch(self) -> None:
        """Raise what makes no sense for a batch."""
        starting = self.starting_bound
        if starting is NamedBound.LATEST:
            raise ConfigurationError("startingOffsets=latest: a batch would read nothing")
        if isinstance(starting, SpecificOffsets) and -1 in starting.offsets.values():
            raise ConfigurationError("startingOffsets has -1 (latest): a batch would read nothing")

    def require_stream(self) -> None:
        """Raise what makes no sense for a stream."""
        for declared, value in (
            (SourceOptions.ending_offsets, self.ending_offsets),
            (SourceOptions.ending_timestamp, self.ending_timestamp),
            (SourceOptions.ending_offsets_by_timestamp, self.ending_offsets_by_timestamp),
        ):
            if value is not None:
                raise ConfigurationError(f"{declared.name} is set, but a stream has no end")
        lowest, highest = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if lowest is not None and highest is not None and lowest > highest:
            raise ConfigurationError(
                f"minOffsetsPerTrigger={lowest} is more than maxOffsetsPerTrigger={highest}"
            )

    def _require_one_choice_of_topics(self) -> None:
        choices = {
            "subscribe": self.subscribe,
            "subscribePattern": self.subscribe_pattern,
            "assign": self.assign,
        }
        chosen = [name for name, value in choices.items() if value]
        if not chosen:
            raise ConfigurationError("which topics? set subscribe, subscribePattern or assign")
        if len(chosen) > 1:
            raise ConfigurationError(f"{' and '.join(chosen)} are set; only one of them can be")

    def _require_group(self) -> None:
        if self.starting_offsets is NamedBound.GROUP and not self.group_id:
            raise ConfigurationError("startingOffsets=group needs groupId: which group?")


def _parse_source_options(
    declarations: Mapping[str, AnyOption], given: Mapping[str, str]
) -> dict[str, object]:
    by_name = {name.lower(): declared for name, declared in declarations.items()}
    values: dict[str, object] = {one.attribute: one.default for one in declarations.values()}
    for name, text in given.items():
        declared = by_name.get(name)
        if declared is None:
            raise ConfigurationError(_explain_unknown(name, declarations))
        try:
            values[declared.attribute] = declared.parse(text)
        except ValueError as fault:
            raise ConfigurationError(declared.message(text, fault)) from None
    return values


def _explain_unknown(name: str, declarations: Mapping[str, AnyOption]) -> str:
    if name in _REFUSED:
        return _REFUSED[name]
    written = {known.lower(): known for known in declarations}
    hint = suggest(name, written)
    for lower, known in written.items():
        hint = hint.replace(f" {lower}?", f" {known}?")
    return f"{name} is not an option of reading with format moldau{hint}"


def _read_client_options(given: Mapping[str, str]) -> ConsumerOptions:
    """Kafka's own options, with `kafka.` before their names. What Moldau's client knows is taken,
    what would mislead is refused, and what has no effect is said in the log."""
    known = ConsumerOptions.declarations()
    taken: dict[str, object] = {"client.id": _CLIENT_ID}
    for full_name, text in given.items():
        name = full_name.removeprefix(KAFKA_PREFIX)
        if name in _REFUSED_OF_KAFKA:
            raise ConfigurationError(f"{full_name} {_REFUSED_OF_KAFKA[name]}")
        if name in known:
            taken[name] = text
        else:
            _log.warning("%s is not known to Moldau's client and has no effect", full_name)
    return ConsumerOptions.read(taken)


# Options of a write: `topic`, `exactlyOnce`, and `kafka.*` for the producer

_WRITE_OPTIONS = ("topic", "exactlyOnce")
_SPARK_WRITE_OPTIONS = frozenset(
    {
        "checkpointlocation",
        "queryname",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
        "includeheaders",
    }
)
"""Options of Spark itself that come along. The last is in the guide of its Kafka sink and does
nothing there: headers are written when there is a column of them."""

_SERIALIZERS = ("key.serializer", "value.serializer")
_TRANSACTIONS = ("transactional.id", "transaction.two.phase.commit.enable")
_YES = ("true", "1", "yes", "on")
_NO = ("false", "0", "no", "off", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What a writer needs to know. Spark pickles it on its way to the workers."""

    bootstrap: str
    topic: str | None
    producer: tuple[tuple[str, str], ...]
    """Options of the producer, named as Kafka names them, sorted."""
    unknown: tuple[str, ...]
    """Options with the prefix of Kafka's that this producer does not have, sorted."""
    exactly_once: bool = False


def read_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Read what `.option(...)` was given, in any case of letters; raises ConfigurationError."""
    options = without_table_properties(given)
    _refuse_unknown(options)
    exactly_once = _read_exactly_once(options)
    kafka = {
        name.removeprefix(KAFKA_PREFIX): value
        for name, value in options.items()
        if name.startswith(KAFKA_PREFIX)
    }
    for name in _SERIALIZERS:
        if name in kafka:
            raise ConfigurationError(
                f"kafka.{name} cannot be set: keys and values are written as they are; cast the "
                "columns to STRING or BINARY instead"
            )
    for name in _TRANSACTIONS:
        if name in kafka:
            raise ConfigurationError(
                f"kafka.{name} cannot be set: a stream with exactlyOnce=true names its "
                "transactions itself"
            )
    declared = {one.name for one in ProducerOptions.declarations().values()}
    producer = {name: value for name, value in kafka.items() if name in declared}
    ProducerOptions.read(producer)
    return WriteOptions(
        bootstrap=_require_bootstrap(kafka.pop("bootstrap.servers", "")),
        topic=options.get("topic", "").strip() or None,
        producer=tuple(sorted(producer.items())),
        unknown=tuple(sorted(kafka.keys() - declared)),
        exactly_once=exactly_once,
    )


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _WRITE_OPTIONS}
    for name in options:
        if name in known or name in _SPARK_WRITE_OPTIONS or name.startswith(KAFKA_PREFIX):
            continue
        if name == "path":
            raise ConfigurationError("save() takes no path: the option topic names the topic")
        if name == "bootstrap.servers":
            raise ConfigurationError(f"bootstrap.servers is called {BOOTSTRAP} here")
        hint = suggest(name, known)
        raise ConfigurationError(f"{name} is not an option of writing with format moldau{hint}")


def _require_bootstrap(text: str) -> str:
    if not text.strip():
        raise ConfigurationError(
            f'nothing says where the brokers are: give .option("{BOOTSTRAP}", "host:port")'
        )
    return text.strip()


def _read_exactly_once(options: Mapping[str, str]) -> bool:
    text = options.get("exactlyonce", "")
    word = text.strip().lower()
    if word not in (*_YES, *_NO):
        raise ConfigurationError(f"exactlyOnce is true or false, not {text!r}")
    if word in _YES and options.get("asyncprogresstrackingenabled", "").lower() == "true":
        raise ConfigurationError(
            "exactlyOnce=true and asyncProgressTrackingEnabled=true exclude each other: a batch "
            "would begin before the one before it is committed"
        )
    return word in _YES


# The options of a table that was made with CREATE TABLE. A source is given the table's properties
# beside its options: the provider behind USING, the owner, the location. They are Spark's own and
# say nothing about topics. The options come with a prefix, when the table is created once more
# without it.


_TABLE_PREFIX: Final = "option."
_TABLE_PROPERTIES: Final = frozenset(
    {"provider", "owner", "location", "comment", "collation", "external", "is_managed_location"}
)


def without_table_properties(given: Mapping[str, str]) -> dict[str, str]:
    """The options alone, with their names in lower case."""
    lower = {name.lower(): text for name, text in given.items()}
    if "provider" not in lower:
        return lower
    prefixed = {
        name.removeprefix(_TABLE_PREFIX): text
        for name, text in lower.items()
        if name.startswith(_TABLE_PREFIX)
    }
    plain = {name: text for name, text in lower.items() if not name.startswith(_TABLE_PREFIX)}
    return {
        name: text for name, text in {**prefixed, **plain}.items() if name not in _TABLE_PROPERTIES
    }


# The table of options in `docs/spark.md`

BEGIN: Final = "<!-- the table is generated: python -m moldau.spark.options docs/spark.md -->\n"
END: Final = "<!-- end of the table -->\n"


def render_reference() -> str:
    """The table, in the order of the declarations."""
    rows = [_reference_row(one) for one in SourceOptions.declarations().values()]
    return "\n".join(["| option | default | what it says |", "|---|---|---|", *rows]) + "\n"


def renew_reference(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{render_reference()}{END}{after}"


def _reference_row(declared: AnyOption) -> str:
    text = declared.default_text
    default = "" if text is None else f"`{text}`"
    documentation = declared.documentation.replace("|", "\\|")
    return f"| `{declared.name}` | {default} | {documentation} |"


def main(arguments: Sequence[str]) -> None:
    """Print the table, or renew it in the file that is named."""
    if arguments:
        path = Path(arguments[0])
        path.write_text(renew_reference(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write(render_reference())


if __name__ == "__main__":
    main(sys.argv[1:])
