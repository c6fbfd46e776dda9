"""Renders `docs/compatibility.md`: what works with what, from the tables that say so.

The APIs and their versions come from `wire/apis.py`. Clients and tools come from the tests that run
them: a cell says yes when a test is named for it below, and a test that does not exist is an error.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from moldau.wire.apis import APIS, NO_VERSION, VersionRange
from support.kafka_jars import CLIENTS as JAVA_CLIENTS
from support.kafka_jars import CORE, NEWEST, ON_ZOOKEEPER, Dependencies

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"

CLIENTS = {
    "confluent-kafka (librdkafka)": "confluent-kafka",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka-python",
    "Java's client": "",
    "Moldau's client": "",
}
"""The columns, and the requirement that each is tested with."""

JAVA, OURS = "Java's client", "Moldau's client"
CONFLUENT, AIOKAFKA, KAFKA_PYTHON = tuple(CLIENTS)[:3]
THREE = (CONFLUENT, AIOKAFKA, KAFKA_PYTHON)

Tests = dict[str, tuple[str, ...]]

FEATURES: dict[str, Tests] = {
    "produce, consume": {
        **dict.fromkeys(
            THREE,
            (
                "compat/test_produce_and_consume.py"
                "::test_records_of_every_kind_come_back_as_they_were",
            ),
        ),
        JAVA: (
            "interop/test_java_transactions.py"
            "::test_kafkas_client_commits_aborts_is_fenced_and_times_out",
        ),
        OURS: ("compat/test_moldau_consumer.py::test_what_any_client_writes_is_read_as_it_was",),
    },
    "gzip, snappy, lz4, zstd": {
        **dict.fromkeys(
            THREE, ("compat/test_produce_and_consume.py::test_each_codec_is_read_by_every_client",)
        ),
        OURS: ("compat/test_moldau_consumer.py::test_what_any_client_writes_is_read_as_it_was",),
    },
    "keys to the same partitions as Java's (librdkafka: with `partitioner=murmur2_random`)": {
        CONFLUENT: (
            "compat/test_moldau_producer.py"
            "::test_keys_go_to_the_partitions_where_librdkafka_puts_them_like_java",
        ),
        OURS: (
            "compat/test_moldau_producer.py"
            "::test_keys_go_to_the_partitions_where_librdkafka_puts_them_like_java",
        ),
    },
    "idempotent producers": {
        **dict.fromkeys(
            THREE, ("compat/test_idempotence.py::test_each_clients_idempotent_producer",)
        ),
        JAVA: ("interop/test_java_transactions.py",),
        OURS: ("system/test_producer_faults.py",),
    },
    "transactions, `read_committed`": {
        **dict.fromkeys(
            THREE, ("compat/test_transactions.py::test_only_what_was_committed_is_read",)
        ),
        JAVA: (
            "interop/test_java_transactions.py"
            "::test_kafkas_client_commits_aborts_is_fenced_and_times_out",
        ),
        OURS: ("compat/test_moldau_transactions.py",),
    },
    "consumer groups, classic protocol": {
        **dict.fromkeys(
            (*THREE, OURS), ("compat/test_groups.py::test_members_of_all_clients_share_one_topic",)
        ),
        JAVA: ("interop/test_java_groups.py::test_members_come_go_and_are_killed",),
    },
    "consumer groups, KIP-848": {
        CONFLUENT: (
            "compat/test_groups.py"
            "::test_a_group_changes_to_the_consumer_protocol_and_back_while_its_members_read",
        ),
        JAVA: ("interop/test_java_groups.py::test_members_come_go_and_are_killed",),
        OURS: (
            "compat/test_moldau_consumer_groups.py"
            "::test_a_pattern_that_the_broker_matches_finds_what_others_make_later",
        ),
    },
    "share groups, KIP-932": {
        JAVA: ("interop/test_java_shares.py",),
        OURS: ("interop/test_queues.py",),
    },
    "topics and settings (admin)": {
        CONFLUENT: (
            "compat/test_topics.py::test_confluent_kafka_makes_lists_describes_enlarges_and_deletes",
        ),
        AIOKAFKA: (
            "compat/test_topics.py::test_aiokafka_makes_lists_describes_enlarges_and_deletes",
        ),
        KAFKA_PYTHON: (
            "compat/test_topics.py::test_kafka_python_makes_lists_describes_enlarges_and_deletes",
        ),
        OURS: ("system/test_cli.py",),
    },
    "TLS, SASL": {
        CONFLUENT: ("system/test_secured_listeners.py::test_confluent",),
        AIOKAFKA: ("system/test_secured_listeners.py::test_aiokafka",),
        KAFKA_PYTHON: ("system/test_secured_listeners.py::test_kafka_python",),
        JAVA: ("interop/test_java_security.py::test_passwords",),
        OURS: ("system/test_secured_listeners.py::test_own_client_with_users",),
    },
    "refusals by access control": {
        CONFLUENT: (
            "system/test_access_control_clients.py::test_librdkafka_is_refused_in_its_words",
        ),
        AIOKAFKA: ("system/test_access_control_clients.py::test_aiokafka_is_refused_in_its_words",),
        KAFKA_PYTHON: (
            "system/test_access_control_clients.py::test_kafka_python_is_refused_in_its_words",
        ),
        JAVA: ("interop/test_java_security.py::test_what_access_control_refuses",),
        OURS: (
            "system/test_access_control_clients.py"
            "::test_our_clients_do_what_is_granted_and_say_what_is_not",
        ),
    },
    "quotas": {
        CONFLUENT: (
            "compat/test_quotas.py::test_a_producer_of_librdkafka_is_slowed_down_and_loses_nothing",
        ),
        OURS: ("compat/test_quotas.py::test_our_own_clients_are_slowed_down_and_lose_nothing",),
    },
    "clients' own metrics, KIP-714": {
        CONFLUENT: (
            "compat/test_client_metrics.py"
            "::test_the_figures_of_a_real_client_are_on_the_metrics_port",
        ),
        JAVA: (
            "interop/test_java_client_metrics.py::test_a_java_producer_is_seen_on_the_metrics_port",
        ),
    },
}

TOOLS: dict[str, tuple[str, str]] = {
    "kcat": ("lists, produces, consumes, finds offsets by time", "compat/test_kcat.py"),
    "kafka-acls": ("lists, adds and removes entries", "interop/test_java_acls.py"),
    "kafka-configs": ("quotas, levels of loggers", "interop/test_java_quotas.py"),
    "kafka-share-groups": (
        "lists, describes, resets, deletes",
        "interop/test_java_share_groups.py",
    ),
    "kafka-streams-groups": (
        "lists, describes, resets and deletes offsets, deletes with internal topics",
        "interop/test_java_streams_groups.py",
    ),
    "kafka-transactions": (
        "finds and aborts hanging transactions",
        "interop/test_java_transactions.py"
        "::test_kafkas_tool_finds_and_aborts_a_hanging_transaction",
    ),
    "Kafka Streams": (
        "`exactly_once_v2`, killed in the middle",
        "interop/test_java_transactions.py"
        "::test_kafka_streams_counts_each_word_once_whenever_it_is_killed",
    ),
    "Kafka Streams, its own group protocol (KIP-1071)": (
        "`exactly_once_v2` in two instances, one killed, the broker restarted",
        "interop/test_java_streams_groups.py",
    ),
    "Spark's Kafka connector": (
        "reads, writes, streams",
        "interop/test_spark_connector.py::test_the_connector_writes_reads_and_streams",
    ),
    "Moldau's source for Spark": ("reads, writes, streams", "spark/test_reading_with_spark.py"),
    "Apache Kafka's brokers, on ZooKeeper": (
        "their folders and their ZooKeeper are taken over, and given back",
        "interop/test_kafka_and_back.py"
        "::test_a_cluster_of_kafka_on_zookeeper_is_taken_over_and_given_back",
    ),
    "Apache Kafka's brokers, in KRaft": (
        "the folder of a broker alone is served, and given back",
        "interop/test_kafka_and_back.py"
        "::test_the_folder_of_a_kraft_broker_is_served_and_given_back",
    ),
}

_INTRODUCTION = """\
# Compatibility

This page is generated from `wire/apis.py` and from the tests that are named on it: run `make
reference`. "Yes" means that a test of this suite runs it against a broker. A blank says that no
test does: mostly because the client has no such thing. What the suites of other projects said is in
[testing](testing.md#other-projects-own-suites).

## Clients
"""

_APIS_INTRODUCTION = """\
## APIs and versions

What the broker serves, and what Moldau's own client speaks to whatever broker it meets. Clients
choose the newest version that both sides have. Where nothing stands, it is not served;
[the wire](apis.md) says what that means.

| key | API | broker | client |
|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    return "\n".join((_INTRODUCTION, *_clients(), *_tools(), _evidence(), _apis()))


def _clients() -> Iterator[str]:
    names = [f"{name} {_version(name)}".strip() for name in CLIENTS]
    yield f"| | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for feature, tests in FEATURES.items():
        cells = ("yes" if _has(tests.get(client, ())) else "" for client in CLIENTS)
        yield f"| {feature} | {' | '.join(cells)} |"
    yield ""


def _tools() -> Iterator[str]:
    yield "## Tools, frameworks, brokers\n"
    yield "| | version | what is tested |"
    yield "|---|---|---|"
    for name, (what, test) in TOOLS.items():
        _has((test,))
        yield f"| {name} | {_tool_version(name)} | {what} |"
    yield ""


def _evidence() -> str:
    lines = ["## Which tests\n", "| | tests |", "|---|---|"]
    for feature, tests in FEATURES.items():
        files = dict.fromkeys(test.partition("::")[0] for one in tests.values() for test in one)
        lines.append(f"| {feature} | {', '.join(f'`tests/{file}`' for file in files)} |")
    lines += [
        f"| {name} | `tests/{test.partition('::')[0]}` |" for name, (_, test) in TOOLS.items()
    ]
    return "\n".join(lines) + "\n"


def _apis() -> str:
    rows = (
        f"| {api.key} | {api.name} | {_range(api.served)} | {_range(api.spoken)} |"
        for api in sorted(APIS.values())
    )
    return _APIS_INTRODUCTION + "\n".join(rows) + "\n"


def _range(versions: VersionRange) -> str:
    if versions == NO_VERSION:
        return ""
    first, last = versions
    return str(first) if first == last else f"{first} to {last}"


def _has(tests: tuple[str, ...]) -> bool:
    """Whether there are tests; raises where one that is named does not exist."""
    for test in tests:
        file, _, name = test.partition("::")
        if name and name not in _names_in(ROOT / "tests" / file):
            raise LookupError(f"tests/{file} has no {name}: mend tests/compatibility")
        if not (ROOT / "tests" / file).exists():
            raise LookupError(f"there is no tests/{file}: mend tests/compatibility")
    return bool(tests)


@cache
def _names_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(one.name for one in ast.walk(tree) if isinstance(one, functions))


def _version(client: str) -> str:
    """What the tests are run with, as it is declared."""
    requirement = CLIENTS[client]
    if requirement:
        return _required(requirement)
    return _kafka(NEWEST) if client == JAVA else ""


def _required(package: str) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (found,) = [
        one
        for one in project["dependency-groups"]["test"]
        if re.match(rf"{re.escape(package)}\W", one)
    ]
    return f"`{re.sub(r'^[^<>=]+', '', found)}`"


def _tool_version(name: str) -> str:
    return {
        "kcat": "Debian's",
        "kafka-configs": _kafka(CORE),
        "kafka-share-groups": _kafka(NEWEST),
        "kafka-streams-groups": _kafka(NEWEST),
        "Kafka Streams, its own group protocol (KIP-1071)": _kafka(NEWEST),
        "Spark's Kafka connector": "of the same Spark, as far as Maven has it",
        "Moldau's source for Spark": f"Spark {_required('pyspark')}",
        "Apache Kafka's brokers, on ZooKeeper": _kafka(ON_ZOOKEEPER),
        "Apache Kafka's brokers, in KRaft": _kafka(CORE),
    }.get(name, _kafka(JAVA_CLIENTS))


def _kafka(jars: Dependencies) -> str:
    return next(version for group, _, version in jars if group == "org.apache.kafka")
