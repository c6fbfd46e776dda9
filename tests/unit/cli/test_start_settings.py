"""What `moldau start` was told, and which word counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.cli.start import _warn_of_open_secrets, gather_settings
from moldau.config.properties import Static, load_properties
from moldau.errors import ConfigurationError


def gather(
    config: Path | None = None,
    *sets: str,
    data_dir: Path | None = None,
    listen: str | None = None,
    broker_id: int | None = None,
) -> Static:
    return gather_settings(
        config=config, sets=sets, data_dir=data_dir, listen=listen, broker_id=broker_id
    )


def test_nothing_said_leaves_everything_to_the_defaults() -> None:
    assert dict(gather()) == {}


def test_flags_come_before_set_and_set_before_the_file(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("broker.id=1\nnum.partitions=1\nlog.dirs=/one\n")
    settings = gather(config, "broker.id=2", "num.partitions=2", broker_id=3)
    assert dict(settings) == {"broker.id": "3", "num.partitions": "2", "log.dirs": "/one"}


def test_flags_stand_for_options() -> None:
    settings = gather(data_dir=Path("/data"), listen="127.0.0.1:9999", broker_id=0)
    assert dict(settings) == {
        "log.dirs": "/data",
        "listeners": "PLAINTEXT://127.0.0.1:9999",
        "broker.id": "0",
    }


def test_a_whole_listener_may_be_given() -> None:
    assert gather(listen="INSIDE://host:1")["listeners"] == "INSIDE://host:1"


@pytest.mark.parametrize(
    ("in_file", "told"),
    [
        ("SASL_SSL://127.0.0.1:9092", "SASL_SSL://10.0.0.1:9093"),  # it stays secured
        ("INSIDE://:9092", "INSIDE://10.0.0.1:9093"),
        ("PLAINTEXT://:9092,CONTROLLER://:9093", "PLAINTEXT://10.0.0.1:9093"),
    ],
)
def test_an_address_alone_is_one_of_the_only_listener(
    in_file: str, told: str, tmp_path: Path
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"listeners={in_file}\n")
    assert gather(config, listen="10.0.0.1:9093")["listeners"] == told


@pytest.mark.parametrize(
    ("line", "mode", "is_told"),
    [
        ("listener.name.x.plain.sasl.jaas.config=hunter2", 0o644, True),
        ("ssl.key.password=hunter2", 0o644, True),
        ("ssl.key.password=hunter2", 0o640, False),
        ("ssl.key.password=${file:/hunter2}", 0o644, False),
        ("num.partitions=2", 0o644, False),
    ],
)
def test_a_password_that_everybody_can_read_is_told(
    line: str, mode: int, is_told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"{line}\n")
    config.chmod(mode)
    _warn_of_open_secrets(config, load_properties(line, config.name))
    said = capsys.readouterr().err
    assert ("everybody on this machine can read" in said) == is_told
    assert "hunter2" not in said


@pytest.mark.parametrize("address", ["9092", "127.0.0.1", "127.0.0.1:", "host:80x", "[::1]"])
def test_what_is_no_address_is_told_in_the_words_of_the_flag(address: str) -> None:
    with pytest.raises(ConfigurationError, match="is not of the form HOST:PORT") as failure:
        gather(listen=address)
    assert str(failure.value).startswith(f"--listen {address} ")
    assert "PLAINTEXT" not in str(failure.value)


@pytest.mark.parametrize("address", [":9092", "[::1]:9092", "localhost:0"])
def test_addresses_may_have_brackets_or_no_host(address: str) -> None:
    assert gather(listen=address)["listeners"] == f"PLAINTEXT://{address}"


def test_a_value_remembers_where_it_stood(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("# a comment\nbroker.id=1\n")
    settings = gather(config, "num.partitions=2", listen="x:1")
    assert settings.origin("broker.id") == "server.properties line 2: "
    assert settings.origin("num.partitions") == "--set "
    assert settings.origin("listeners") == "--listen: "


def test_a_file_in_latin_one_is_read(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_bytes("broker.rack=Smíchov".encode("latin-1"))
    assert gather(config)["broker.rack"] == "Smíchov"
    config.write_bytes("broker.rack=Smíchov".encode())
    assert gather(config)["broker.rack"] == "Smíchov"


def test_a_set_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="key=value"):
        gather(None, "nonsense")
