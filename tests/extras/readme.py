"""The README as a script: every block of code in it, in order, in clean environments.

The blocks are taken from `README.md` itself, so that neither can change without the other. What a
reader would know to do is done here and nothing else: to let the broker run beside, to stop it
where the same ports are needed, to run first what a comment `# after: …` names, to install the
client that a block imports. Ports are moved to free ones.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from environments import ROOT, TIMEOUT_SECONDS, Environment, clean_environ

from support.pages import Block, Server, blocks_of, find_ports, moved_ports

LEFT_OUT = {"make test": "it is what `.ci/run` does beside this"}
SERVES = "make start"
CLIENTS = {"confluent_kafka": "confluent-kafka>=2.10,<3"}
ENDLESS = "for record in consumer: ..."
PUBLISH_ORDER = """
import moldau

def publish_order(bootstrap):  # what the reader's own project has
    with moldau.Producer(bootstrap) as producer:
        producer.send("orders", value=b"one").result(60)

"""


def follow_readme(core: Environment, spark: Environment) -> None:
    """Raise CalledProcessError or TimeoutExpired at the first thing that does not work."""
    blocks = blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
    text = "".join(block.text for block in blocks)
    for wanted in (*LEFT_OUT, SERVES, *CLIENTS, ENDLESS):
        if wanted not in text:
            raise AssertionError(f"README.md no longer has {wanted!r}: mend {Path(__file__).name}")
    with tempfile.TemporaryDirectory(dir=core.work) as folder:
        reader = Reader(core, spark, Path(folder))
        try:
            for block in blocks:
                print(f"readme: {block.heading}", flush=True)  # noqa: T201
                reader.follow(block)
        finally:
            reader.stop_broker()


class Reader:
    """Somebody who types what the page says: commands beside the Makefile, and code in a project of
    their own."""

    def __init__(self, core: Environment, spark: Environment, folder: Path) -> None:
        self._core = core
        self._spark = spark
        self._folder = folder / "moldau"
        self._project = folder / "project"
        self._port = find_ports()
        self._broker: Server | None = None
        self._project.mkdir()
        shutil.copytree(ROOT / "src", self._folder / "src")
        for name in ("Makefile", "pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, self._folder / name)
        (core.bin.parent / ".core").touch()  # for make: the environment is made already

    def follow(self, block: Block) -> None:
        if block.language == "python":
            self._follow_python(block.text)
        else:
            self._follow_shell(block.text)

    def stop_broker(self) -> None:
        """With Ctrl-C, as the page says."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def _follow_shell(self, text: str) -> None:
        lines = [line for line in text.splitlines() if not _is_left_out(line)]
        if any(line.startswith(SERVES) for line in lines):
            self._start_broker()
            lines = [line for line in lines if not line.startswith(SERVES)]
        is_cluster = "moldau cluster" in text
        environment = self._spark if is_cluster else self._core
        had_broker = self._broker is not None
        if is_cluster:
            self.stop_broker()
        try:
            self._run_shell([self._move_ports(line) for line in _in_order(lines)], environment)
        except BaseException:
            for line in lines:
                if line.startswith("moldau cluster stop"):
                    self._run_shell([line], environment)
            raise
        if is_cluster and had_broker:
            self._start_broker()

    def _follow_python(self, text: str) -> None:
        environment = self._spark if "moldau.spark" in text else self._core
        for module, requirement in CLIENTS.items():
            if module in text:
                environment.add(requirement)
        file = self._project / "test_block.py"
        moved = self._move_ports(text.replace(ENDLESS, ENDLESS.replace("...", "break")))
        python = str(environment.bin / "python")
        if text.startswith("def test_"):
            environment.add("pytest")
            file.write_text(PUBLISH_ORDER + moved, encoding="utf-8")
            command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
        else:
            file.write_text(moved, encoding="utf-8")
            command = [python, str(file)]
        self._run(command, environment, self._project)

    def _run_shell(self, lines: list[str], environment: Environment) -> None:
        if lines:
            self._run(["bash", "-euo", "pipefail", "-c", "\n".join(lines)], environment)

    def _run(
        self, command: list[str], environment: Environment, folder: Path | None = None
    ) -> None:
        subprocess.run(
            command,
            check=True,
            cwd=folder or self._folder,
            env=self._environ(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_SECONDS,
        )

    def _environ(self, environment: Environment) -> dict[str, str]:
        given = clean_environ(MOLDAU_BOOTSTRAP=f"127.0.0.1:{self._port}")
        return {**given, "PATH": f"{environment.bin}:{given['PATH']}"}

    def _start_broker(self) -> None:
        """Beside, in a session of its own; returns when it says that it listens."""
        command = ["make", "start", f"VENV={self._core.bin.parent}", f"PORT={self._port}"]
        self._broker = Server(command, self._folder, self._environ(self._core))

    def _move_ports(self, text: str) -> str:
        """To where nobody else listens."""
        return moved_ports(text, self._port).replace(
            "moldau cluster start", f"moldau cluster start --base-port {self._port}"
        )


def _is_left_out(line: str) -> bool:
    return any(line.startswith(command) for command in LEFT_OUT)


def _in_order(lines: list[str]) -> Iterator[str]:
    """With what has to come first, where a comment says so."""
    for line in lines:
        _, _, first = line.partition("# after: ")
        if first:
            yield first
        yield line
