"""Our client of schema registries against a real one: Apicurio Registry, where it is here.

`make apicurio` gets it from Maven's repository (110 MB) and runs this; other runs use what is here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from moldau.errors import IncompatibleSchemaError, RegistryError, SchemaNotFoundError
from moldau.schemas import Reference, Schema, SchemaRegistry, SchemaSerializer, decode_any
from moldau.schemas.rules.framing import make_head
from moldau.testing.free_ports import take_port
from support.topics import fresh_name
from support.waiting import eventually

VERSION = "3.0.9"
FOLDER = Path.home() / ".m2/repository/io/apicurio/apicurio-registry-app" / VERSION
ARCHIVE = FOLDER / f"apicurio-registry-app-{VERSION}-all.tar.gz"
START_SECONDS = 280


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    java = shutil.which("java")
    if java is None or not ARCHIVE.exists():
        pytest.skip("Apicurio Registry is not on this machine: `make apicurio` gets it, by Maven")
    folder = tmp_path_factory.mktemp("apicurio")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    port = take_port()
    (jar,) = folder.glob("*-runner.jar")
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dquarkus.http.host=127.0.0.1"),
                *(f"-Dquarkus.http.port={port}", "-jar", str(jar)),
            ],
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        eventually(
            lambda: process.poll() is not None or answers(url), "Apicurio answers", START_SECONDS
        )
        assert process.poll() is None, log.read_text()[-2000:]
        yield SchemaRegistry(url, timeout_seconds=60)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def answers(url: str) -> bool:
    try:
        SchemaRegistry(url, timeout_seconds=2).subjects()
    except RegistryError:
        return False
    return True


def record(*fields: object) -> Schema:
    return Schema(text=json.dumps({"type": "record", "name": "Click", "fields": fields}))


USER = {"name": "user", "type": "string"}
PAGE = {"name": "page", "type": "string"}
PAGE_OR_NONE = {"name": "page", "type": "string", "default": ""}


def test_subjects_versions_and_compatibility(registry: SchemaRegistry) -> None:
    subject = fresh_name("clicks") + "-value"
    first = registry.register(subject, record(USER))
    request = urllib.request.Request(
        f"{registry.address}/config/{subject}",
        json.dumps({"compatibility": "BACKWARD"}).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200

    assert registry.compatibility_level(subject) == "BACKWARD"
    assert not registry.check(subject, record(USER, PAGE)).is_compatible
    with pytest.raises(IncompatibleSchemaError):
        registry.register(subject, record(USER, PAGE))
    second = registry.register(subject, record(USER, PAGE_OR_NONE))
    assert registry.versions(subject) == [1, 2]
    assert registry.version(subject).id == second.id != first.id
    assert (subject, 1) in registry.used_by(first.id or 0)
    assert registry.look_up(subject, record(USER)).id == first.id
    assert subject in registry.subjects()
    with pytest.raises(SchemaNotFoundError, match="has no schema 123456"):
        registry.schema(123456)
    with pytest.raises(SchemaNotFoundError):
        registry.versions("nowhere")
    assert registry.delete(subject, 1) == [1]


def test_protobuf_and_json_schema_with_references(registry: SchemaRegistry) -> None:
    place, who = fresh_name("place"), fresh_name("who")
    registry.register(
        place, Schema(text='syntax = "proto3"; message Place { string city = 1; }', type="PROTOBUF")
    )
    text = 'syntax = "proto3"; import "place.proto"; message Other {} message Who { Place at = 1; }'
    reference = Reference(name="place.proto", subject=place, version=1)
    schema = Schema(text=text, type="PROTOBUF", references=(reference,))
    serializer = SchemaSerializer(registry, schema, subject=who, message="Who")
    data = serializer.for_topic("t", "value")({"at": {"city": "Praha"}}) or b""

    shown = decode_any(SchemaRegistry(registry.address, timeout_seconds=60), data)
    assert (shown.name, shown.value) == ("Who", {"at": {"city": "Praha"}})
    document = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
    number = registry.register(fresh_name("j"), Schema(text=json.dumps(document), type="JSON")).id
    shown = decode_any(registry, make_head(number or 0) + b'{"a": 1}')
    assert (shown.type, shown.value) == ("JSON", {"a": 1})


def test_confluents_serializers_and_ours_meet_in_it(registry: SchemaRegistry) -> None:
    topic = fresh_name("t")
    context = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": registry.address}) as theirs:
        written = AvroSerializer(theirs, record(USER).text)({"user": "a"}, context)
        assert decode_any(registry, written).value == {"user": "a"}
        ours = SchemaSerializer(registry).for_topic(topic, "value")({"user": "b"})
        assert AvroDeserializer(theirs)(ours, context) == {"user": "b"}
