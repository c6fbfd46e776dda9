"""The console beside `moldau start`: whether there is one, and its process.

It is started after the broker listens, and the broker never waits for it. It ends with the broker,
also with one that was killed: its standard input is a pipe of which the broker has the other end.
When it ends by itself, the broker goes on, and says so.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass

import typer

from moldau.cli.console_extra import is_installed, missing_text
from moldau.cli.output import note

_STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleChoice:
    """What the command line says. An address asks for a console, wherever the output goes."""

    address: str | None = None
    is_unwanted: bool = False

    def __post_init__(self) -> None:
        if self.address is not None and self.is_unwanted:
            raise typer.BadParameter("choose one of --console and --no-console")


def choose_console(choice: ConsoleChoice) -> ConsoleProcess | None:
    """Without a word about it, only a person at a terminal gets one: scripts, tests and services
    do not pay for what nobody opens."""
    if choice.is_unwanted or (choice.address is None and not sys.stdout.isatty()):
        return None
    return ConsoleProcess(choice.address)


class ConsoleProcess:
    """At most one process; `start` and `stop` do not block the broker."""

    def __init__(self, address: str | None) -> None:
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def start(self, bootstrap: str) -> None:
        """Say how to get it where it is not installed. The line about where it is comes from it."""
        if not is_installed():
            note(f"moldau: {missing_text()}")
            return
        command = [sys.executable, "-m", "moldau", "console", "--with-parent"]
        command += ["--bootstrap", bootstrap]
        if self._address is not None:
            command += ["--listen", self._address]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is our own
                command, stdin=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            note(f"moldau: the console cannot be started ({error}); the broker goes on")
            return
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
            note(
                f"moldau: the console has ended with status {status}; the broker goes on, and "
                "`moldau console` starts another"
            )
