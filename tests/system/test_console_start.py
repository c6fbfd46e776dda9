"""The console beside `moldau start`: when there is one, and how both end."""

from __future__ import annotations

import contextlib
import http.client
import os
import pty
import re
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.processes import read_command_line
from moldau.testing.free_ports import take_port
from support.broker_process import broker_process, moldau_command, running_broker
from support.console_process import ConsoleProcess, running_console
from support.waiting import PATIENCE_SECONDS, eventually

pytest.importorskip("nicegui")

_CONSOLE = re.compile(r"console at (http://127\.0\.0\.1:\d+)")


def find_consoles(parent: int) -> list[int]:
    """Children of a process that are consoles."""
    children: list[int] = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            children += map(int, (task / "children").read_text().split())
    return [child for child in children if "console" in read_command_line(child)]


def is_alive(pid: int) -> bool:
    return any(read_command_line(pid))


def is_served(url: str, host: str | None = None, method: str = "GET") -> bool:
    headers = {} if host is None else {"Host": host}
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status == 200
    except urllib.error.URLError:
        return False


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_console_that_was_asked_for_lives_and_dies_with_its_broker(
    tmp_path: Path, brokers: int
) -> None:
    count = ("--brokers", str(brokers)) if brokers > 1 else ()
    arguments = ("--console", "127.0.0.1:0", *count)
    with broker_process(tmp_path, arguments=arguments) as broker:
        broker.start()
        url = eventually(lambda: _CONSOLE.search(broker.output), "the console says where it is")[1]
        assert is_served(url)
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(f"{url}/nowhere", timeout=PATIENCE_SECONDS)
        assert missing.value.code == 404
        assert b'<a href="/">Overview</a>' in missing.value.read()
        (console,) = find_consoles(broker.pid)
        assert broker.stop() == 0
        assert not is_alive(console)
        assert "console has ended" not in broker.output


def test_a_console_ends_with_a_broker_that_was_killed(tmp_path: Path) -> None:
    with broker_process(tmp_path, arguments=("--console", "127.0.0.1:0")) as broker:
        broker.start()
        eventually(lambda: _CONSOLE.search(broker.output), "the console says where it is")
        (console,) = find_consoles(broker.pid)
        broker.kill()
        eventually(lambda: not is_alive(console), "the console has ended, too")


def test_a_broker_goes_on_without_its_console(tmp_path: Path) -> None:
    with broker_process(tmp_path, arguments=("--console", "127.0.0.1:0")) as broker:
        broker.start()
        eventually(lambda: _CONSOLE.search(broker.output), "the console says where it is")
        (console,) = find_consoles(broker.pid)
        os.kill(console, signal.SIGKILL)
        eventually(lambda: "the console has ended" in broker.output, "the broker says so")
        assert broker.is_alive
        assert broker.stop() == 0


def test_a_console_that_cannot_listen_is_no_concern_of_the_broker(tmp_path: Path) -> None:
    with running_broker() as other:
        address = f"127.0.0.1:{other.port}"
        with broker_process(tmp_path, arguments=("--console", address)) as broker:
            broker.start()
            eventually(lambda: "the console has ended" in broker.output, "the broker says so")
            assert "cannot listen on" in broker.output
            assert broker.is_alive


@pytest.mark.parametrize("arguments", [(), ("--no-console",)])
def test_scripts_get_no_console(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with broker_process(tmp_path, arguments=arguments) as broker:
        broker.start()
        assert find_consoles(broker.pid) == []
        assert broker.stop() == 0
        assert "console" not in broker.output


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a pseudo-terminal."""
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)


def test_a_person_at_a_terminal_gets_a_console(
    tmp_path: Path, terminal: tuple[int, int], ctrl_c: None
) -> None:
    ours, theirs = terminal
    command = moldau_command("start", "--listen", f"127.0.0.1:{take_port()}", "--data-dir", "data")
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        seen = ""
        while not _CONSOLE.search(seen):
            seen += os.read(ours, 4096).decode(errors="replace")
        assert seen.index("listening on") < seen.index("console at")  # nobody waits for it
        found = _CONSOLE.search(seen)
        assert found is not None
        assert is_served(found[1])
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert not is_served(found[1])
    finally:
        process.kill()
        process.wait()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with running_broker() as broker:
        address = f"127.0.0.1:{broker.port}"
        console = ConsoleProcess(tmp_path, broker.bootstrap, ["--listen", address])
        eventually(lambda: not console.is_alive, "it has ended")
        assert f"cannot listen on {address}: Address already in use; choose" in console.output
        assert console.end() == 1


def test_only_its_own_machine_may_ask(tmp_path: Path) -> None:
    """Another name in a request is a web page that had its own name point here."""
    with running_broker() as broker, running_console(tmp_path, broker.bootstrap) as console:
        port = console.url.rpartition(":")[2]
        assert is_served(console.url)
        assert is_served(console.url, method="HEAD")
        assert is_served(console.url, f"localhost:{port}")
        assert not is_served(console.url, f"evil.example:{port}")


def test_listening_elsewhere_is_refused_and_with_insecure_warned_of(tmp_path: Path) -> None:
    arguments = ["--listen", "0.0.0.0:0", "--read-only"]
    with running_broker() as broker:
        refused = ConsoleProcess(tmp_path / "refused", broker.bootstrap, arguments)
        eventually(lambda: not refused.is_alive, "it has ended")
        assert "--insecure" in refused.output
        assert refused.end() != 0
        with running_console(tmp_path, broker.bootstrap, [*arguments, "--insecure"]) as console:
            assert "warning: the console listens on 0.0.0.0 without a login" in console.output
            assert "change and delete" not in console.output


def test_a_console_speaks_tls_and_refuses_sockets_of_other_pages(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from moldau.testing.running_secured_broker import write_certificates

    authority = write_certificates(tmp_path)
    arguments = ["--certificate", str(tmp_path / "broker.pem")]
    trusting = ssl.create_default_context(cadata=authority.certificate)
    with (
        running_broker() as broker,
        running_console(tmp_path, broker.bootstrap, arguments) as console,
    ):
        assert console.url.startswith("https://")
        request = urllib.request.Request(console.url)
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=trusting) as answer:
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert "server" not in answer.headers
        host, _, port = console.url.removeprefix("https://").partition(":")
        path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
        for origin, expected in ((console.url, 101), ("https://evil.example", 403)):
            connection = http.client.HTTPSConnection(host, int(port), context=trusting)
            with contextlib.closing(connection):
                connection.request(
                    "GET",
                    path,
                    headers={
                        "Connection": "Upgrade",
                        "Upgrade": "websocket",
                        "Origin": origin,
                        "Sec-WebSocket-Version": "13",
                        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
                    },
                )
                assert connection.getresponse().status == expected
