from __future__ import annotations

import pytest

from moldau.config.listeners import Listener, parse_listeners, parse_protocol_map


def test_an_address_is_taken_apart() -> None:
    (listener,) = parse_listeners("PLAINTEXT://127.0.0.1:9092")
    assert listener == Listener(
        name="PLAINTEXT", security_protocol="PLAINTEXT", host="127.0.0.1", port=9092
    )


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("PLAINTEXT://:9092", ""),
        ("PLAINTEXT://0.0.0.0:9092", "0.0.0.0"),
        ("PLAINTEXT://[::]:9092", "::"),
        ("PLAINTEXT://[]:9092", ""),
    ],
)
def test_an_empty_host_means_all_interfaces(address: str, host: str) -> None:
    (listener,) = parse_listeners(address)
    assert listener.host == host
    assert listener.is_on_all_interfaces


def test_an_ipv6_address_stands_in_brackets_and_is_kept_without_them() -> None:
    (listener,) = parse_listeners("PLAINTEXT://[fe80::1%eth0]:9092")
    assert listener.host == "fe80::1%eth0"
    assert not listener.is_on_all_interfaces
    assert str(listener) == "PLAINTEXT://[fe80::1%eth0]:9092"


def test_names_are_upper_case_and_mapped_to_their_protocol() -> None:
    protocols = parse_protocol_map("internal:PLAINTEXT, External:sasl_ssl")
    inside, outside = parse_listeners("internal://a:1,EXTERNAL://b:2", protocols)
    assert (inside.name, inside.security_protocol) == ("INTERNAL", "PLAINTEXT")
    assert (outside.name, outside.security_protocol) == ("EXTERNAL", "SASL_SSL")


def test_a_protocol_needs_no_entry_in_the_map() -> None:
    assert parse_listeners("SSL://a:1", parse_protocol_map(""))[0].security_protocol == "SSL"


def test_a_listener_moves_to_another_address() -> None:
    (listener,) = parse_listeners("PLAINTEXT://0.0.0.0:0")
    assert str(listener.at("box", 4711)) == "PLAINTEXT://box:4711"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("127.0.0.1:9092", "not of the form NAME://host:port"),
        ("PLAINTEXT://127.0.0.1", "not of the form"),
        ("PLAINTEXT://127.0.0.1:", "not of the form"),
        ("PLAINTEXT://127.0.0.1:-1", "not of the form"),
        ("PLAINTEXT://::1:9092", "IPv6 address stands in brackets"),
        ("PLAINTEXT://a b:9092", "not of the form"),
        ("PLAINTEXT://a:9092/path", "not of the form"),
        ("PLAINTEXT://a:65536", "has the port 65536, which is larger than 65535"),
        ("PLAINTEXT://a:1,", "not of the form"),
        ("CLIENTS://a:1", "add CLIENTS:PLAINTEXT to listener.security.protocol.map"),
        ("PLAINTEXT://a:1,plaintext://b:2", "names the listener PLAINTEXT twice"),
    ],
)
def test_a_wrong_address_is_refused_with_a_reason(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_listeners(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("A", "not of the form NAME:PROTOCOL"),
        (":SSL", "not of the form NAME:PROTOCOL"),
        ("A:TLS", "names TLS, which is not one of PLAINTEXT"),
        ("A:SSL,a:SSL", "names A twice"),
    ],
)
def test_a_wrong_protocol_map_is_refused_with_a_reason(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_protocol_map(text)
