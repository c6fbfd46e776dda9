"""Our client of a registry, over real HTTP: what it asks, remembers, and does when things fail."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.errors import (
    ConfigurationError,
    IncompatibleSchemaError,
    RegistryAuthorizationError,
    RegistryError,
    RegistryUnreachableError,
    SchemaDecodingError,
    SchemaNotFoundError,
)
from moldau.schemas import Reference, Schema, SchemaRegistry, decode_any
from moldau.schemas.rules.framing import make_head
from moldau.security.certificates import issue, make_authority
from moldau.testing.free_ports import take_port
from support.schema_registry import RegistryServer, serve_registry


def avro(*fields: object, name: str = "Click") -> Schema:
    return Schema(text=json.dumps({"type": "record", "name": name, "fields": fields}))


USER = {"name": "user", "type": "string"}
PAGE = {"name": "page", "type": "string"}
PAGE_OR_NONE = {"name": "page", "type": "string", "default": ""}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serve_registry() as found:
        yield found


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url, timeout_seconds=30)


def test_subjects_versions_and_numbers(registry: SchemaRegistry) -> None:
    first = registry.register("a/b-value", avro(USER))
    second = registry.register("a/b-value", avro(USER, PAGE_OR_NONE))
    registry.register("c-value", avro(USER))

    assert registry.subjects() == ["a/b-value", "c-value"]
    assert registry.subjects("c") == ["c-value"]
    assert registry.versions("a/b-value") == [1, 2]
    assert registry.version("a/b-value").id == second.id
    assert registry.version("a/b-value", 1).id == first.id
    assert registry.look_up("a/b-value", avro(USER)).version == 1
    assert registry.used_by(first.id or 0) == [("a/b-value", 1), ("c-value", 1)]
    assert registry.compatibility_level("c-value") == "BACKWARD"


def test_what_is_not_there_or_not_compatible_is_told(registry: SchemaRegistry) -> None:
    registry.register("s", avro(USER))

    with pytest.raises(SchemaNotFoundError, match="nowhere"):
        registry.versions("nowhere")
    with pytest.raises(SchemaNotFoundError, match="Version 7"):
        registry.version("s", 7)
    with pytest.raises(SchemaNotFoundError):
        registry.look_up("s", avro(PAGE))
    assert not registry.check("s", avro(USER, PAGE)).is_compatible
    assert "page" in registry.check("s", avro(USER, PAGE)).messages[0]
    assert registry.check("s", avro(USER, PAGE_OR_NONE)).is_compatible
    with pytest.raises(IncompatibleSchemaError, match="page"):
        registry.register("s", avro(USER, PAGE))
    with pytest.raises(RegistryError, match="Invalid Avro"):
        registry.register("s", Schema(text="{"))


def test_deleting_is_marking_at_first(registry: SchemaRegistry) -> None:
    registry.register("s", avro(USER))
    registry.register("s", avro(USER, PAGE_OR_NONE))

    assert registry.delete("s", 1) == [1]
    assert registry.versions("s") == [2]
    assert registry.delete("s") == [1, 2]
    assert (registry.subjects(), registry.subjects(deleted=True)) == ([], ["s"])
    assert registry.delete("s", permanent=True) == [1, 2]
    assert registry.subjects(deleted=True) == []


def test_each_schema_is_asked_for_once_and_a_missing_one_not_for_every_record(
    registry: SchemaRegistry, server: RegistryServer
) -> None:
    SchemaRegistry(server.url).register("s", avro(USER))
    server.stored.requests.clear()
    data = make_head(1) + b"\x02x"

    assert [decode_any(registry, data).value for _ in range(3)] == [{"user": "x"}] * 3
    for _ in range(3):
        with pytest.raises(SchemaNotFoundError, match="has no schema 99"):
            decode_any(registry, make_head(99) + b"x")
    assert server.stored.requests == ["GET /schemas/ids/1", "GET /schemas/ids/99"]


def test_damaged_bytes_and_schemas_are_told(registry: SchemaRegistry) -> None:
    registry.register("s", avro(USER))
    proto = Schema(text='syntax = "proto3"; message M { stringg x = 1; }', type="PROTOBUF")
    number = registry.register("p", proto).id

    for data in (make_head(1) + b"\x08x", make_head(1) + b"\x02xy", make_head(1)):
        with pytest.raises(SchemaDecodingError, match="Click"):
            decode_any(registry, data)
    with pytest.raises(ConfigurationError, match="stringg"):
        decode_any(registry, make_head(number or 0) + b"\0")


def test_references_that_go_in_circles_or_out_of_the_folder_are_refused(
    registry: SchemaRegistry, server: RegistryServer
) -> None:
    circle = (Reference(name="B", subject="s", version=1),)
    one = registry.register("s", Schema(text='"string"', references=circle))
    outside = (Reference(name="../../evil.proto", subject="p", version=1),)
    plain = 'syntax = "proto3"; message M {}'
    registry.register("p", Schema(text=plain, type="PROTOBUF"))
    two = registry.register("q", Schema(text=plain, type="PROTOBUF", references=outside))

    with pytest.raises(ConfigurationError, match="circles"):
        SchemaRegistry(server.url).codec(one.id or 0)
    with pytest.raises(ConfigurationError, match="no name of a"):
        registry.codec(two.id or 0)


def test_a_registry_that_stumbles_is_asked_again_and_a_dead_one_passed_over(
    server: RegistryServer,
) -> None:
    server.stored.failures += [500, 503]
    assert SchemaRegistry(server.url, timeout_seconds=60).subjects() == []

    dead = f"http://127.0.0.1:{take_port()}"
    assert SchemaRegistry(f"{dead},{server.url}", timeout_seconds=60).subjects() == []
    with pytest.raises(RegistryUnreachableError, match=r"within 0\.3 seconds"):
        SchemaRegistry(dead, timeout_seconds=0.3).subjects()


def test_who_is_not_known_is_told_so(server: RegistryServer) -> None:
    server.stored.login = "me:secret"

    with pytest.raises(RegistryAuthorizationError, match=r"basic\.auth\.user\.info"):
        SchemaRegistry(server.url).subjects()
    assert SchemaRegistry(server.url, basic_auth="me:secret").subjects() == []
    with_login = server.url.replace("//", "//me:secret@")
    assert SchemaRegistry(with_login).subjects() == []


def test_certificates_are_checked_and_shown_with_the_names_of_the_brokers(tmp_path: Path) -> None:
    """The registry wants a certificate of its clients, too."""
    authority = make_authority("tests")
    files = {"ca": authority.certificate}
    for name, hosts in (("server", ["127.0.0.1"]), ("client", [])):
        made = issue(authority, name, hosts)
        files[name] = made.certificate + made.key
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server")
    context.load_verify_locations(tmp_path / "ca")
    context.verify_mode = ssl.CERT_REQUIRED
    with serve_registry(tls=context) as server:
        settings = {
            "schema.registry.url": server.url,
            "schema.registry.ssl.truststore.location": str(tmp_path / "ca"),
            "schema.registry.ssl.keystore.location": str(tmp_path / "client"),
            "schema.registry.request.timeout.ms": "60000",
        }
        assert SchemaRegistry.from_settings(settings).subjects() == []
        with pytest.raises(RegistryUnreachableError, match=r"ssl\.truststore\.location"):
            SchemaRegistry(server.url, timeout_seconds=60).subjects()
        del settings["schema.registry.ssl.keystore.location"]
        settings["schema.registry.request.timeout.ms"] = "500"
        with pytest.raises(RegistryUnreachableError):
            SchemaRegistry.from_settings(settings).subjects()


def test_an_answer_that_drips_has_an_end() -> None:
    """Each byte comes in time, and all of them never would."""
    is_over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not is_over.wait(0.02):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            with pytest.raises(RegistryUnreachableError):
                SchemaRegistry(url, timeout_seconds=0.5).subjects()
        finally:
            is_over.set()
            thread.join()
