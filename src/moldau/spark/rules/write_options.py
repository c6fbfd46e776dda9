"""The options of a write: `topic`, `exactlyOnce`, and `kafka.*` for the producer. A rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.config.client_options import ProducerOptions
from moldau.config.option import suggest
from moldau.errors import ConfigurationError
from moldau.spark.rules.table_properties import without_table_properties

BOOTSTRAP = "kafka.bootstrap.servers"

_PREFIX = "kafka."
_OWN = ("topic", "exactlyOnce")
_SPARKS = frozenset(
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
        name.removeprefix(_PREFIX): value
        for name, value in options.items()
        if name.startswith(_PREFIX)
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
    known = {name.lower(): name for name in _OWN}
    for name in options:
        if name in known or name in _SPARKS or name.startswith(_PREFIX):
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
