"""TLS under hostile conditions: handshakes that fail, that never end, and that come all at once."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import selectors
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

import moldau
from moldau.net.connection_quotas import MAX_PENDING_CONNECTIONS
from moldau.security.certificates import issue, make_authority
from moldau.security.rules.certificates import first_end_ms
from moldau.testing.running_secured_broker import SecuredBroker, secured_broker
from support.waiting import PATIENCE_SECONDS, eventually

FLOOD = 1_000
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
"""A whole request, length included."""


class Audited:
    """A broker with listeners of all kinds, and what its audit log says."""

    def __init__(self, broker: SecuredBroker, file: Path) -> None:
        self.broker = broker
        self._file = file

    def lines(self) -> list[dict[str, str]]:
        """Whole ones: the broker writes while this reads."""
        written = self._file.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in written if line.endswith("\n")]

    def wait_for(self, listener: str, reason: str) -> None:
        eventually(
            lambda: any(
                (line["event"], line.get("listener")) == ("handshake failed", listener)
                and reason in line["reason"]
                for line in self.lines()
            ),
            lambda: f"{self.lines()}",
        )

    def connect(self, listener: str = "SASL_SSL") -> socket.socket:
        host, _, port = self.broker.address_of(listener).rpartition(":")
        return socket.create_connection((host, int(port)), PATIENCE_SECONDS)

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.broker.authority_file))


@pytest.fixture
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    """For each test a broker of its own: a flood uses up how much the audit log tells."""
    folder = tmp_path_factory.mktemp("handshakes")
    file = folder / "audit.log"
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,OPEN://127.0.0.1:0,"
        "QUIET://127.0.0.1:0",
        "listener.security.protocol.map": "MUTUAL:SSL,OPEN:SSL,QUIET:SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(alice)$/$1/",
        "audit.log.path": str(file),
        "metrics.listener": "127.0.0.1:0",
    }
    with secured_broker(settings, folder=folder) as broker:
        yield Audited(broker, file)


def ask(sock: socket.socket) -> None:
    sock.sendall(API_VERSIONS)
    head = b""
    while len(head) < 8:
        received = sock.recv(8 - len(head))
        assert received, "the connection has ended"
        head += received
    size, correlation_id = struct.unpack(">ii", head)
    assert correlation_id == 7
    left = size - 4
    while left:
        left -= len(sock.recv(left))


def test_who_speaks_no_tls_is_in_the_audit_log(audited: Audited) -> None:
    with audited.connect() as sock:
        sock.sendall(API_VERSIONS)
        with contextlib.suppress(ConnectionError):
            assert sock.recv(100)[:1] in (b"", b"\x15")  # an alert at most
    audited.wait_for("SASL_SSL", "wrong version number")


def test_who_does_not_trust_the_broker_is_in_the_audit_log(audited: Audited) -> None:
    context = ssl.create_default_context()
    with audited.connect() as sock, pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(sock, server_hostname="127.0.0.1")
    audited.wait_for("SASL_SSL", "alert unknown ca")


def test_who_has_no_certificate_or_a_strangers_is_in_the_audit_log(
    audited: Audited, tmp_path: Path
) -> None:
    def speak(context: ssl.SSLContext) -> None:
        with (
            audited.connect("MUTUAL") as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
        ):
            ask(secured)

    context = audited.trusting()
    with pytest.raises((OSError, AssertionError)):
        speak(context)
    audited.wait_for("MUTUAL", "peer did not return a certificate")
    stranger = issue(make_authority("a stranger"), "alice")
    (tmp_path / "stranger.pem").write_text(stranger.certificate + stranger.key)
    context.load_cert_chain(tmp_path / "stranger.pem")
    with pytest.raises((OSError, AssertionError)):
        speak(context)
    audited.wait_for("MUTUAL", "certificate verify failed")
    context.load_cert_chain(audited.broker.issue_certificate("bob"))
    with pytest.raises((OSError, AssertionError)):
        speak(context)
    audited.wait_for("MUTUAL", "which no ssl.principal.mapping.rules take")
    context.load_cert_chain(audited.broker.issue_certificate("alice"))
    speak(context)


def test_who_only_looks_whether_somebody_listens_is_not_told(audited: Audited) -> None:
    for sent in (b"", b"\x16\x03\x01"):
        with audited.connect("QUIET") as sock:
            sock.sendall(sent)
    with audited.connect("QUIET") as sock:
        sock.sendall(API_VERSIONS)
        audited.wait_for("QUIET", "wrong version number")  # the last, and so the others are done
    assert len([one for one in audited.lines() if one.get("listener") == "QUIET"]) == 1


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl on the PATH")
def test_a_client_that_wants_to_negotiate_anew_is_refused(audited: Audited) -> None:
    """In TLS 1.2; later versions do not have it. Each time would cost the broker a signature."""
    command = ["openssl", "s_client", "-tls1_2", "-connect", audited.broker.address_of("OPEN")]
    done = subprocess.run(
        command, input=b"R\n", capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )
    said = done.stdout + done.stderr
    assert b"RENEGOTIATING" in said
    assert b"no renegotiation" in said, said
    with (
        audited.connect("OPEN") as sock,
        audited.trusting().wrap_socket(sock, server_hostname="127.0.0.1") as secured,
    ):
        ask(secured)


def test_the_metrics_say_when_the_first_certificate_ends(audited: Audited) -> None:
    with urlopen(f"{audited.broker.metrics_url}/metrics", timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    (found,) = re.findall(r"^moldau_certificate_expiry_timestamp_seconds (\S+)$", text, re.M)
    wanted = first_end_ms((audited.broker.folder / "broker.pem").read_bytes())
    assert wanted is not None
    assert float(found) == wanted / 1000


def hello(context: ssl.SSLContext) -> bytes:
    """The first message of a handshake that may go on."""
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 3 * FLOOD + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"{wanted} files may not be open here (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_handshakes_at_once_and_none_of_them_ends(audited: Audited) -> None:
    """Those who are connected go on, and new ones are let in: the oldest of those who never finish
    make room for them."""
    context = audited.trusting()
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(audited.connect("OPEN"))
        good = stack.enter_context(context.wrap_socket(sock, server_hostname="127.0.0.1"))
        ask(good)
        flood = [stack.enter_context(audited.connect("OPEN")) for _ in range(FLOOD)]
        message = hello(context)
        for one in flood:
            one.sendall(message)
            one.setblocking(False)
        answered = 0
        with selectors.DefaultSelector() as selector:
            for one in flood:
                selector.register(one, selectors.EVENT_READ)
            while selector.get_map():
                ask(good)  # between their steps
                for key, _ in selector.select(PATIENCE_SECONDS):
                    answered += key.fileobj.recv(1)[:1] == b"\x16"  # type: ignore[union-attr]
                    selector.unregister(key.fileobj)
        assert answered >= FLOOD - 1
        options = audited.broker.client_options("alice")
        with moldau.Admin(audited.broker.bootstrap, **options) as admin:
            assert admin.describe_cluster().brokers
        # One more than may be under way: the first of them goes.
        more = [
            stack.enter_context(audited.connect("OPEN")) for _ in range(MAX_PENDING_CONNECTIONS)
        ]
        for one in more:
            one.sendall(message)
        audited.wait_for("OPEN", "too many TLS handshakes are under way")
        ask(good)
        late = stack.enter_context(audited.connect("OPEN"))
        ask(stack.enter_context(context.wrap_socket(late, server_hostname="127.0.0.1")))


def test_a_damaged_certificate_leaves_the_former_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with secured_broker(folder=tmp_path) as broker:
        audited = Audited(broker, tmp_path / "none")
        store = tmp_path / "broker.pem"
        former = store.read_text()
        store.write_text(former[: len(former) // 2])
        eventually(
            lambda: any("the former stay in force" in one for one in caplog.messages),
            lambda: "nothing was said",
        )
        with (
            audited.connect() as sock,
            audited.trusting().wrap_socket(sock, server_hostname="127.0.0.1") as secured,
        ):
            ask(secured)
