"""A page of the documentation as its reader runs it: the blocks of code, in order.

- A block with a title (```` ```toml title="orders.toml" ````) is a file beside the commands; under
  `deploy/` it is a file of the source tree, which has to say the same.
- `sh` is run by bash. A line that begins with `moldau start` runs beside what follows, until the
  next one, a comment that begins with Ctrl-C, or the page's end.
- `python` is run in one namespace for the whole page.
- A block below `<!-- not run: reason -->` is only shown. Other languages are not run.

Ports are moved to free ones. Nothing is imported that needs more than the standard library, since
`make extras` uses this with no other package there.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import IO

from moldau.testing.free_ports import take_port

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"
USUAL_PORT = 9092
_BELOW = USUAL_PORT - 8081  # where pages have a schema registry
TIMEOUT_SECONDS = 900
SHELLS = ("sh", "bash")

_FENCE = re.compile(r"^ *```(\w*)(?: +title=\"([^\"]+)\")?\s*$")
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
_ADDRESS = re.compile(r"\b(127\.0\.0\.1|localhost):(\d+)")
_SERVES = "moldau start"
_STOPS = "# Ctrl-C"


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code, and what stands above it."""

    heading: str
    language: str
    text: str
    title: str = ""
    not_run: str = ""
    """Why it is only shown; empty where it is run."""


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page in Markdown."""
    found: list[Block] = []
    heading = language = title = not_run = ""
    lines: list[str] | None = None
    for line in page.splitlines():
        if lines is not None:
            if line.strip() == "```":
                text = dedent("\n".join(lines) + "\n")
                found.append(Block(heading, language, text, title, not_run))
                lines, not_run = None, ""
            else:
                lines.append(line)
        elif line.lstrip().startswith("```"):
            fence = _FENCE.match(line)
            if fence is None:
                raise ValueError(f"{line!r} opens no block that a test can read")
            lines, language, title = [], fence[1], fence[2] or ""
        elif reason := _NOT_RUN.search(line):
            not_run = reason[1]
        elif line.strip():
            not_run = ""
            if line.startswith("#"):
                heading = line.lstrip("# ")
    return found


def moved_ports(text: str, base: int) -> str:
    """With each address of this machine counted from `base` instead of the usual port."""
    return _ADDRESS.sub(lambda found: f"{found[1]}:{int(found[2]) - USUAL_PORT + base}", text)


def find_ports() -> int:
    """The first of three free ports in a row, with others as far from it as pages have them."""
    lowest = take_port(_BELOW, _BELOW + 1, _BELOW + 2, _BELOW + 100, _BELOW + 312)
    return lowest + _BELOW


class Server:
    """A command that runs beside, in a session of its own."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> None:
        """Returns when it says that it listens."""
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=_take_ctrl_c,
        )
        said: list[str] = []
        for line in self._output:
            said.append(line)
            if line.startswith("listening on"):
                threading.Thread(target=self._output.read, daemon=True).start()
                return
        code = self._process.wait(TIMEOUT_SECONDS)
        raise subprocess.CalledProcessError(code, command, "".join(said).encode())

    def stop(self) -> None:
        """With Ctrl-C."""
        os.killpg(self._process.pid, signal.SIGINT)
        self._process.wait(TIMEOUT_SECONDS)
        self._output.close()

    @property
    def _output(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout


def _take_ctrl_c() -> None:
    """Whatever started this run may ignore it, and children would, too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class PageReader:
    """Somebody who does what a page says, in a folder of its own."""

    def __init__(self, page: Path, folder: Path, environ: Mapping[str, str]) -> None:
        self._page = page
        self._folder = folder
        self._base = find_ports()
        self._environ = {**environ, "MOLDAU_BOOTSTRAP": f"127.0.0.1:{self._base}"}
        self._names: dict[str, object] = {"__name__": "page"}
        self._server: Server | None = None
        self.said = ""
        """What the commands printed."""

    def moved(self, port: int) -> int:
        """Where a port of the page is."""
        return port - USUAL_PORT + self._base

    def follow(self, *, beside_a_broker: bool = False) -> int:
        """Do everything; how many blocks were run. Raises at the first that does not work."""
        count = 0
        try:
            if beside_a_broker:
                self._serve(_SERVES)
            for block in blocks_of(self._page.read_text(encoding="utf-8")):
                count += self._do(block)
        finally:
            self._stop_server()
        return count

    def _do(self, block: Block) -> bool:
        if block.title:
            self._keep_file(block)
        elif block.not_run:
            return False
        elif block.language == "python":
            code = compile(moved_ports(block.text, self._base), str(self._page), "exec")
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(code, self._names)
            self.said += printed.getvalue()
            return True
        elif block.language in SHELLS:
            self._follow_shell(block.text)
            return True
        return False

    def _keep_file(self, block: Block) -> None:
        if block.title.startswith("deploy/"):
            kept = (ROOT / block.title).read_text(encoding="utf-8")
            assert block.text == kept, f"{block.title} says something else than {self._page.name}"
        file = self._folder / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(moved_ports(block.text, self._base), encoding="utf-8")

    def _follow_shell(self, text: str) -> None:
        waiting: list[str] = []
        for line in moved_ports(text, self._base).splitlines():
            if line.startswith(_SERVES):
                self._run(waiting)
                waiting = []
                self._serve(line)
            elif line.startswith(_STOPS):
                self._run(waiting)
                waiting = []
                self._stop_server()
            else:
                waiting.append(line)
        self._run(waiting)

    def _serve(self, line: str) -> None:
        self._stop_server()
        if "--listen" not in line:
            listen = f"{_SERVES} --listen 127.0.0.1:{self._base}"
            line = line.replace(_SERVES, listen, 1)
        self._server = Server(["bash", "-c", f"exec {line}"], self._folder, self._environ)

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def _run(self, lines: list[str]) -> None:
        if not any(line.strip() for line in lines):
            return
        script = "\n".join(lines).replace(
            "moldau cluster start", f"moldau cluster start --base-port {self._base}"
        )
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        self.said += done.stdout
        assert done.returncode == 0, f"{self._page.name}:\n{script}\n{done.stdout}"
