"""The files in `deploy/`, as far as they can be checked without the systems that they are for.

Options are read by the program itself. Schemas need the tools of the dependency group `docs`, which
`make docs` installs: without them those tests are skipped.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from moldau.cli.main import build
from moldau.cli.start import gather_settings
from moldau.config.broker_options import BrokerOptions
from moldau.config.describe import find_unknown
from moldau.config.properties import Static, load_properties, load_settings
from support.pages import PAGES, ROOT, blocks_of

DEPLOY = ROOT / "deploy"


def require_tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_read(settings: Static) -> None:
    """Nothing in it is unknown, and no value is wrong."""
    assert [str(unknown) for unknown in find_unknown(settings)] == []
    BrokerOptions.resolve(settings)


def read_options(words: list[str], folder: Path, text: str = "") -> Static:
    """The settings of a `moldau start …`, with the file that it names."""
    config = folder / "server.properties"
    config.write_text(text, encoding="utf-8")
    here = [str(config) if word == "/etc/moldau/server.properties" else word for word in words]
    command: Any = build()
    given = command.commands["start"].make_context("start", here).params
    return gather_settings(
        config=None if given["config"] is None else Path(given["config"]),
        sets=given["to_set"] or (),
        data_dir=given["data_dir"],
        listen=given["listen"],
        broker_id=given["broker_id"],
        metrics=given["metrics"],
    )


@pytest.mark.parametrize(
    ("page", "title"),
    [
        (page.name, block.title)
        for page in sorted(PAGES.glob("*.md"))
        for block in blocks_of(page.read_text(encoding="utf-8"))
        if block.language == "properties" and block.title
    ],
)
def test_settings_on_a_page_are_read_by_a_broker(page: str, title: str) -> None:
    blocks = blocks_of((PAGES / page).read_text(encoding="utf-8"))
    (block,) = [one for one in blocks if one.title == title]
    assert_read(load_properties(block.text, title))


def test_the_unit_starts_a_broker_with_options_that_there_are(tmp_path: Path) -> None:
    unit = (DEPLOY / "moldau.service").read_text(encoding="utf-8")
    (start,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    environ = (DEPLOY / "broker.env").read_text(encoding="utf-8")
    (options,) = [line for line in environ.splitlines() if line.startswith("MOLDAU_OPTIONS=")]
    line = start.replace("$MOLDAU_OPTIONS", options.partition("=")[2])
    words = shlex.split(line.partition(" start ")[2])
    secured = (DEPLOY / "cluster.properties").read_text(encoding="utf-8")
    listener = "listeners=SASL_SSL://0.0.0.0:9092\nsecurity.inter.broker.protocol=SASL_SSL\n"
    assert_read(read_options(words, tmp_path, listener + secured))


@pytest.mark.parametrize("name", ["moldau.service", "moldau-pipeline@.service"])
def test_systemd_reads_the_unit(name: str, tmp_path: Path) -> None:
    tool = require_tool("systemd-analyze")
    text = (DEPLOY / name).read_text(encoding="utf-8")
    copy = tmp_path / name
    copy.write_text(text.replace("/opt/moldau/bin/moldau", "/bin/true"), encoding="utf-8")
    run(tool, "verify", str(copy))


def test_compose_starts_a_broker_with_options_that_there_are(tmp_path: Path) -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    first, *words = compose["services"]["broker"]["command"]
    assert first == "start"
    assert_read(read_options(words, tmp_path))


def test_kubernetes_starts_a_broker_with_options_that_there_are(tmp_path: Path) -> None:
    text = (DEPLOY / "kubernetes" / "moldau.yaml").read_text(encoding="utf-8")
    parts = {one["kind"]: one for one in yaml.safe_load_all(text)}
    (container,) = parts["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    script = container["command"][-1].replace("exec moldau", "echo")
    said = subprocess.run(
        ["sh", "-c", script],
        env={"HOSTNAME": "moldau-2"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = said.stdout.split()
    assert words[0] == "start"
    settings = read_options(words[1:], tmp_path, parts["ConfigMap"]["data"]["server.properties"])
    assert settings["broker.id"] == "3"
    assert settings["advertised.listeners"] == "PLAINTEXT://moldau-2.moldau:9092"
    assert_read(settings)


def test_kubernetes_has_a_schema_that_the_manifests_keep() -> None:
    tool = require_tool("kubernetes-validate")
    run(tool, "--strict", *map(str, sorted((DEPLOY / "kubernetes").glob("*.yaml"))))


def test_compose_has_a_schema_that_the_file_keeps() -> None:
    tool = require_tool("check-jsonschema")
    run(tool, "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml"))


def test_the_dockerfile_has_nothing_that_hadolint_knows_better() -> None:
    run(require_tool("hadolint"), str(DEPLOY / "Dockerfile"))


def test_settings_that_are_wrong_are_found() -> None:
    with pytest.raises(AssertionError):
        assert_read(load_settings(["default.replication.facto=3"]))
    with pytest.raises(Exception, match=r"min\.insync\.replicas"):
        assert_read(load_settings(["min.insync.replicas=0"]))
