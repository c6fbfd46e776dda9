"""The console beside `moldau start`: whether it is installed and wanted, and its process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Mapping
from importlib.util import find_spec

from moldau.cli.options import PROFILE_VARIABLE
from moldau.cli.output import note, warn
from moldau.config.broker_options import BrokerOptions
from moldau.processes import build_module_command

# It is started after the broker listens, and the broker never waits for it. It ends with the
# broker, also with one that was killed: its standard input is a pipe of which the broker has the
# other end. When it ends by itself, the broker goes on, and says so.


_STOP_SECONDS = 5.0
_BEST_FIRST = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


def client_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """How clients connect to the first listener of a broker with these settings; nothing where it
    has neither TLS nor SASL. Nobody's password is in it: people log in to the console."""

    options = BrokerOptions.resolve(settings)
    listener = options.open_listeners[0]
    found: dict[str, str | None] = {}
    if listener.uses_tls or listener.uses_sasl:
        found["security.protocol"] = listener.security_protocol
        own = options.of_listener(listener.name)
    if listener.uses_sasl:
        enabled = own.sasl_enabled_mechanisms
        found["sasl.mechanism"] = next((one for one in _BEST_FIRST if one in enabled), enabled[0])
    if listener.uses_tls:
        found["ssl.truststore.location"] = own.ssl_truststore_location
        found["ssl.truststore.password"] = own.ssl_truststore_password
        found["ssl.truststore.certificates"] = own.ssl_truststore_certificates
    return {name: value for name, value in found.items() if value is not None}


class ConsoleProcess:
    """At most one process; `start` and `stop` do not block the broker."""

    def __init__(self, address: str | None, *, is_insecure: bool) -> None:
        self._address = address  # None: where a console usually is
        self._is_insecure = is_insecure  # --insecure, which counts for the console, too
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def start(self, bootstrap: str, settings: Mapping[str, str]) -> None:
        """Beside brokers with these settings. Say how to get it where it is not installed; the line
        about where it is comes from it."""
        if not is_installed():
            note(f"moldau: {missing_text()}")
            return
        command = build_module_command("moldau", "console", "--with-parent")
        command += ["--bootstrap", bootstrap]
        if self._address is not None:
            command += ["--listen", self._address]
        if self._is_insecure:
            command.append("--insecure")
        options = client_settings(settings)
        if options:
            command.append("--options-from-parent")
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is our own
                command, stdin=subprocess.PIPE, start_new_session=True, env=_without_profile()
            )
        except OSError as error:
            warn(f"the console cannot be started ({error}); the broker goes on")
            return
        if options and self._process.stdin is not None:  # not in the list of processes: a password
            with contextlib.suppress(OSError):  # it has ended already, and is waited for below
                self._process.stdin.write(json.dumps(options).encode() + b"\n")
                self._process.stdin.flush()
        threading.Thread(target=self._wait, args=(self._process,), daemon=True).start()

    def stop(self) -> None:
        self._is_stopping = True
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        status = process.wait()
        if not self._is_stopping:
            warn(
                f"the console has ended with status {status}; the broker goes on, and "
                "`moldau console` starts another"
            )


def _without_profile() -> dict[str, str]:
    """A profile is of another cluster than the one that is started here."""
    return {name: value for name, value in os.environ.items() if name != PROFILE_VARIABLE}


def is_installed() -> bool:
    return find_spec("nicegui") is not None


def missing_text() -> str:
    return "the web console is an extra: pip install 'moldau[console]'"
