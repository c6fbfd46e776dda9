"""Contexts from key stores: what each format is, and what is said of those that are not read."""

from __future__ import annotations

import shlex
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.config.listener_options import ListenerOptions
from moldau.config.option import Layers
from moldau.errors import ConfigurationError, MissingExtraError
from moldau.security.certificates import issue, make_authority, to_pkcs12
from moldau.security.tls import client_context, find_chain_end_ms, server_context

AUTHORITY = make_authority("authority")
PASSWORD = "changeit"


def options(**settings: str) -> ListenerOptions:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return ListenerOptions.of_listener(Layers(static=named), "OUTSIDE")


@pytest.mark.parametrize("begin", [b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"])
def test_javas_own_format_is_refused_with_the_command_that_helps(
    tmp_path: Path, begin: bytes
) -> None:
    store = tmp_path / "my store.jks"
    store.write_bytes(begin + b"\0\0\0\2")
    with pytest.raises(ConfigurationError) as refused:
        server_context(options(ssl_keystore_location=str(store)))
    assert str(refused.value).endswith(
        f"keytool -importkeystore -srckeystore '{store}' -destkeystore '{store}.p12' "
        "-deststoretype PKCS12"
    )
    with pytest.raises(ConfigurationError, match=r"ssl\.truststore\.location.*keytool"):
        client_context(options(ssl_truststore_location=str(store)))


def test_without_cryptography_it_is_said_what_reads_pkcs12(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "broker.p12"
    store.write_bytes(to_pkcs12(issue(AUTHORITY, "broker"), AUTHORITY, PASSWORD))
    for module in [one for one in sys.modules if one.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, module, None)
    stored = options(ssl_keystore_location=str(store), ssl_keystore_password=PASSWORD)
    trusted = options(ssl_truststore_location=str(store), ssl_truststore_password=PASSWORD)
    for read in (
        lambda: server_context(stored),
        lambda: client_context(stored),
        lambda: client_context(trusted),
        lambda: find_chain_end_ms(stored),
    ):
        with pytest.raises(MissingExtraError, match=r"pip install 'moldau\[security\]'"):
            read()


@pytest.mark.skipif(shutil.which("keytool") is None, reason="there is no keytool on the PATH")
def test_the_command_makes_a_store_that_is_read(tmp_path: Path) -> None:
    store = tmp_path / "my store.jks"
    made = ("keytool", "-genkeypair", "-keyalg", "EC", "-alias", "broker", "-dname", "CN=broker")
    made += ("-keystore", str(store), "-storetype", "JKS")
    made += ("-storepass", PASSWORD, "-keypass", PASSWORD)
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    with pytest.raises(ConfigurationError) as refused:
        server_context(options(ssl_keystore_location=str(store)))
    command = shlex.split("keytool" + str(refused.value).rpartition("keytool")[2])
    passwords = ("-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    subprocess.run((*command, *passwords), check=True, capture_output=True, timeout=120)
    read = options(ssl_keystore_location=f"{store}.p12", ssl_keystore_password=PASSWORD)
    server_context(read)
    assert find_chain_end_ms(read) is not None


def test_comments_in_a_trust_store_may_be_in_any_language(tmp_path: Path) -> None:
    store = tmp_path / "ca.pem"
    store.write_text(f"# Autorité, Zertifikat, 証明書\n{AUTHORITY.certificate}")
    context = client_context(options(ssl_truststore_location=str(store)))
    assert len(context.get_ca_certs()) == 1


def test_nobody_negotiates_anew_or_compresses(tmp_path: Path) -> None:
    one = issue(AUTHORITY, "broker", ("localhost",))
    store = tmp_path / "broker.pem"
    store.write_text(one.certificate + one.key)
    context = server_context(options(ssl_keystore_location=str(store)))
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
