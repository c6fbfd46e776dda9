"""`moldau schemas`, and records by a schema registry in `consume` and `produce`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cli.main import run
from moldau.testing.running_broker import RunningBroker, broker
from support.command_line import Cli, write_lines
from support.schema_registry import RegistryServer, serve_registry
from support.topics import fresh_name

ALL = ("--from-beginning", "--until-end")
USER = {"name": "user", "type": "string"}
AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker({"num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    with serve_registry() as found:
        monkeypatch.setenv("MOLDAU_SCHEMA_REGISTRY", found.url)
        yield found


@pytest.fixture
def cli(
    shared: RunningBroker, server: RegistryServer, capsysbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    return Cli(shared.bootstrap, capsysbinary)


class Schemas:
    """`moldau schemas`, which knows no brokers."""

    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capture
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        found = run(["schemas", *arguments])
        out, err = self._capture.readouterr()
        self.err = err.decode()
        assert found == code, self.err
        return out.decode()


@pytest.fixture
def schemas(server: RegistryServer, capsysbinary: pytest.CaptureFixture[bytes]) -> Schemas:
    return Schemas(capsysbinary)


@pytest.fixture
def click(tmp_path: Path) -> str:
    return write_schema(tmp_path / "click.avsc", USER, AT)


def write_schema(path: Path, *fields: object) -> str:
    path.write_text(json.dumps({"type": "record", "name": "Click", "fields": fields}))
    return str(path)


def test_schemas_are_registered_listed_shown_checked_and_deleted(
    schemas: Schemas, click: str, tmp_path: Path
) -> None:
    bad = write_schema(tmp_path / "bad.avsc", USER, AT, {"name": "new", "type": "int"})

    assert "no version yet" in schemas("check", "clicks-value", click)
    assert schemas("register", "clicks-value", click) == "clicks-value version 1 has id 1\n"
    assert json.loads(schemas("list", "--json")) == [
        {"subject": "clicks-value", "versions": [1], "type": "AVRO", "id": 1}
    ]
    assert schemas("list", "cl").splitlines()[1].split() == ["clicks-value", "AVRO", "1", "1"]
    assert json.loads(schemas("show", "clicks-value"))["name"] == "Click"
    shown = json.loads(schemas("show", "--id", "1", "--json"))
    assert shown["used_by"] == [{"subject": "clicks-value", "version": 1}]
    assert "would take it" in schemas("check", "clicks-value", click)
    assert "would not" in schemas("check", "clicks-value", bad, code=1)
    schemas("register", "clicks-value", bad, code=1)
    assert "new" in schemas.err
    assert "version 1 marked" in schemas("delete", "clicks-value", "--version", "1")
    assert "version 1 removed" in schemas("delete", "clicks-value", "--permanent")
    assert schemas("list") == ""
    assert "no such subjects" in schemas.err


def test_a_schema_with_references_is_registered(schemas: Schemas, tmp_path: Path) -> None:
    line, order = tmp_path / "line.proto", tmp_path / "order.proto"
    line.write_text('syntax = "proto3"; message Line { string article = 1; }')
    order.write_text('syntax = "proto3"; import "line.proto"; message Order { Line line = 1; }')

    schemas("register", "line", str(line))
    schemas("register", "orders-value", str(order), "--reference", "line.proto=line:1")
    shown = json.loads(schemas("show", "orders-value", "--json"))
    assert shown["references"] == [{"name": "line.proto", "subject": "line", "version": 1}]
    schemas("register", "x", str(order), "--reference", "line.proto=line", code=2)
    assert "NAME=SUBJECT:VERSION" in schemas.err


def test_json_goes_in_and_comes_out_and_is_avro_between(
    cli: Cli, click: str, tmp_path: Path
) -> None:
    topic = fresh_name("clicks")
    lines = write_lines(
        tmp_path, '{"user": "ä", "at": "2026-11-16T04:00:00Z"}', '{"user": "b", "at": 5}'
    )
    cli("produce", topic, "--file", lines, "--format", "avro", "--value-schema", click)

    assert cli("consume", topic, *ALL, "--format", "avro").splitlines() == [
        '{"user":"ä","at":"2026-11-16T04:00:00+00:00"}',
        '{"user":"b","at":"1970-01-01T00:00:00.005000+00:00"}',
    ]
    (first, second) = cli.json_lines("consume", topic, *ALL, "--value-format", "registry")
    assert (first["value_schema_id"], second["value"]["user"]) == (1, "b")  # type: ignore[index]
    assert cli("consume", topic, *ALL, "--format", "%o %v", "--value-format", "avro").startswith(
        '0 {"user":"ä"'
    )


def test_keys_are_encoded_and_decoded_and_a_message_is_chosen(cli: Cli, tmp_path: Path) -> None:
    topic = fresh_name("orders")
    proto, key = tmp_path / "all.proto", tmp_path / "key.avsc"
    proto.write_text('syntax = "proto3"; message A { int32 x = 1; } message B { int64 n = 1; }')
    key.write_text('"long"')
    lines = write_lines(tmp_path, '7\t{"n": "9007199254740993"}')
    cli(
        *("produce", topic, "--file", lines, "--key-separator", "\t"),
        *("--format", "protobuf", "--value-schema", str(proto), "--value-message", "B"),
        *("--key-format", "avro", "--key-schema", str(key)),
    )

    assert cli(
        *("consume", topic, *ALL, "--format", "key-value"),
        *("--value-format", "protobuf", "--key-format", "registry"),
    ) == '7\t{"n":"9007199254740993"}\n'  # fmt: skip


def test_what_is_not_decoded_is_shown_all_the_same_and_goes_in_again(
    cli: Cli, click: str, tmp_path: Path
) -> None:
    topic = fresh_name("mixed")
    good, plain = str(tmp_path / "good"), str(tmp_path / "plain")
    Path(good).write_text('{"user": "a", "at": 5}\n')
    Path(plain).write_text("plain\n")
    cli("produce", topic, "--file", good, "--format", "avro", "--value-schema", click)
    cli("produce", topic, "--file", plain)
    cli("produce", topic, "--file", good, "--format", "avro")

    shown = cli("consume", topic, *ALL, "--format", "avro", code=1).splitlines()
    assert len(shown) == 3
    assert base64.b64decode(json.loads(shown[1])["base64"]) == b"plain"
    assert "at offset 1 is not decoded: the value begins with the byte 0x70" in cli.err
    assert "1 key or value was not decoded" in cli.err
    copied = tmp_path / "copied.jsonl"
    copied.write_text(cli("consume", topic, *ALL, "--json", "--value-format", "avro", code=1))
    other = fresh_name("copy")
    cli(
        *("produce", other, "--file", str(copied), "--format", "json"),
        *("--value-format", "avro", "--value-schema", click),
    )
    assert cli("consume", other, *ALL, "--format", "hex") == cli(
        "consume", topic, *ALL, "--format", "hex"
    )


def test_a_line_that_does_not_fit_is_told_and_those_before_it_are_sent(
    cli: Cli, click: str, tmp_path: Path
) -> None:
    topic = fresh_name("clicks")
    lines = write_lines(tmp_path, '{"user": "a", "at": 5}', '{"user": 7, "at": 5}', "no JSON")
    cli("produce", topic, "--file", lines, "--format", "avro", "--value-schema", click, code=1)

    assert "line 2 has a value that does not fit its schema: at user: 7 is not a string" in cli.err
    assert len(cli("consume", topic, *ALL, "--format", "avro").splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--format", "avro"), "register a schema for"),
        (("--value-schema-id", "7"), "needs --value-format"),
        (("--format", "avro", "--value-schema-id", "7"), "has no schema 7"),
        (("--format", "avro", "--value-format", "protobuf"), "by --format already"),
        (("--key-format", "xml"), "none of avro"),
        (("--format", "avro", "--schema-registry", "nowhere"), "no address of a registry"),
    ],
)
def test_what_cannot_be_written_is_told_before_anything_is_sent(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    lines = write_lines(tmp_path, "{}")

    found = run(["produce", fresh_name("t"), "--file", lines, *words])

    assert found in (1, 2)
    assert told in cli._capture.readouterr().err.decode()


def test_a_group_does_not_pass_over_what_a_dead_registry_kept_from_being_shown(
    cli: Cli, click: str, tmp_path: Path
) -> None:
    topic, group = fresh_name("clicks"), fresh_name("group")
    lines = write_lines(tmp_path, '{"user": "a", "at": 5}')
    cli("produce", topic, "--file", lines, "--format", "avro", "--value-schema", click)
    config = tmp_path / "client.properties"
    config.write_text(
        "schema.registry.url=http://127.0.0.1:1\nschema.registry.request.timeout.ms=200\n"
    )
    words = ("consume", topic, *ALL, "--group", group, "--format", "avro")

    found = run([*words, "--bootstrap", cli._bootstrap, "--command-config", str(config),
                 "--schema-registry", "http://127.0.0.1:1"])  # fmt: skip
    assert found == 1
    assert (
        "no schema registry answered within 0.2 seconds" in cli._capture.readouterr().err.decode()
    )
    assert cli(*words) == '{"user":"a","at":"1970-01-01T00:00:00.005000+00:00"}\n'


def test_queues_are_decoded_as_well(cli: Cli, click: str, tmp_path: Path) -> None:
    topic, group = fresh_name("jobs"), fresh_name("group")
    lines = write_lines(tmp_path, '{"user": "a", "at": 5}')
    cli("produce", topic, "--file", lines, "--format", "avro", "--value-schema", click)
    cli("configs", "alter", "--group", group, "--set", "share.auto.offset.reset=earliest")

    (shown,) = cli.json_lines(
        "consume", topic, "--queue", group, "--max-messages", "1", "--value-format", "avro"
    )
    assert (shown["value"]["user"], shown["delivery_count"]) == ("a", 1)  # type: ignore[index]


def test_the_login_of_a_profile_is_for_the_registry_of_the_profile_alone(
    schemas: Schemas, server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stored.login = "me:secret"
    monkeypatch.delenv("MOLDAU_SCHEMA_REGISTRY")
    config = tmp_path / "client.properties"
    config.write_text(f"schema.registry.url={server.url}\nbasic.auth.user.info=me:secret\n")

    schemas("list", "--command-config", str(config))
    config.write_text("schema.registry.url=http://elsewhere\nbasic.auth.user.info=me:secret\n")
    schemas("list", "--command-config", str(config), "--schema-registry", server.url, code=1)
    assert "Unauthorized" in schemas.err
