"""A broker starts with what every broker needs; the rest is imported when somebody uses it.

Every module costs each start about a third of a millisecond and some twenty kilobytes. Whoever
finds a module of his here: import it in the function that makes use of it, and name it for types
under TYPE_CHECKING, as `broker.share_coordination` and `broker.monitoring.composition` do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from moldau.broker.handlers import LOADED_AT_START
from moldau.records import codec

START = """
import json, os, signal, sys

class Output:
    def isatty(self):
        return False
    def flush(self):
        pass
    def write(self, text):
        if text.startswith("listening on"):
            sys.__stdout__.write(json.dumps(sorted(sys.modules)))
            os.kill(os.getpid(), signal.SIGTERM)

sys.stdout = Output()
from moldau.cli.entry import main
main()
"""
"""`moldau start`, which tells what it has loaded as soon as it listens."""

NEEDED_BY_SOME = {
    "groups": "groups.rules* groups.shard groups.share_groups groups.offsets_log",
    "share groups": "shares.rules* shares.share_part* broker.share_persister broker.dead_letters",
    "metrics.listener": "net.http_server metrics.exposition metrics.catalogue "
    "broker.monitoring.endpoint broker.monitoring.collector broker.monitoring.group_lag "
    "broker.monitoring.probes",
    "clients that push metrics": "metrics.otlp metrics.client_series metrics.client_subscriptions",
    "TLS and SASL": "security.tls security.sasl_server security.rules.[!a]* net.secured "
    "net.tls_connection broker.sasl_* broker.listener_tls",
    "an authorizer": "security.authorizer security.rules.authorization",
    "several brokers": "replication.replica_fetcher replication.leader_link "
    "replication.follower_truncation broker.supervisor "
    "coordination.store_* coordination.zookeeper*",
    "compacted logs": "storage.cleaner storage.compaction_round storage.rules.compaction",
    "other programs": "client* console* ops* spark* arrow* testing*",
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """What is imported when a broker with default settings answers."""
    folder: Path = tmp_path_factory.mktemp("start")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            START,
            "start",
            "--data-dir",
            str(folder),
            "--listen",
            "127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return frozenset(json.loads(done.stdout))


@pytest.mark.parametrize("use", NEEDED_BY_SOME)
def test_a_start_leaves_out_what_nobody_uses(use: str, modules: frozenset[str]) -> None:
    patterns = [f"moldau.{one}" for one in NEEDED_BY_SOME[use].split()]
    assert not [one for one in modules if any(fnmatch(one, pattern) for pattern in patterns)]


def test_a_start_loads_only_the_handlers_of_every_client(modules: frozenset[str]) -> None:
    handlers = {one for one in modules if one.startswith("moldau.broker.handlers.")}
    assert handlers == {f"moldau.broker.handlers.{api.snake_name}" for api in LOADED_AT_START}


def test_a_start_loads_no_package_of_an_extra(modules: frozenset[str]) -> None:
    assert not modules & {"kazoo", "pyarrow", "pyspark", "rich", "cryptography", "http.server"}


def test_a_start_loads_nothing_of_the_standard_library_that_few_need(
    modules: frozenset[str],
) -> None:
    """Compressors, and tables of all alphabets."""
    assert not modules & {"shutil", "bz2", "lzma", "difflib", "unicodedata", "encodings.idna"}


def test_a_start_loads_neither_typer_nor_readers_of_messages(modules: frozenset[str]) -> None:
    """Plain command lines, and the messages that every client sends, are read by hand."""
    assert not {one for one in modules if one.startswith(("typer", "kio.serial", "kio.index"))}


def test_a_start_loads_neither_openssl_nor_codecs(modules: frozenset[str]) -> None:
    of_openssl = {"ssl", "_ssl"}
    if codec.IMPLEMENTATION == "native":  # the twin in Python hashes keys
        of_openssl.add("_hashlib")
    assert not modules & {*of_openssl, "cramjam", "zstandard"}


@pytest.mark.skipif(codec.IMPLEMENTATION == "pure", reason="there is only the twin")
def test_the_codec_in_python_is_not_loaded_beside_the_native_one(modules: frozenset[str]) -> None:
    assert "moldau.records._codec_pure" not in modules


def test_every_pattern_names_modules_that_exist() -> None:
    source = Path(codec.__file__).parents[1]
    there = {
        ".".join(path.relative_to(source).with_suffix("").parts) for path in source.rglob("*.py")
    }
    for patterns in NEEDED_BY_SOME.values():
        for pattern in patterns.split():
            assert any(fnmatch(one, pattern) for one in there), f"nothing is called {pattern}"
