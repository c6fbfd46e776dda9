"""Profiles: clusters under names, and which of several words about a cluster counts."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli import main
from moldau.cli.main import Command
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, client_options, security_options
from moldau.cli.output import print_document
from moldau.cli.profiles import _escape
from moldau.config.properties import parse_properties


def probe(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None:
    """What a command that talks to brokers would use."""
    print_document([bootstrap, security_options()])


Moldau = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in ("MOLDAU_PROFILE", "MOLDAU_BOOTSTRAP", "MOLDAU_COMMAND_CONFIG"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "config" / "moldau"


@pytest.fixture
def moldau(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Moldau:
    monkeypatch.setitem(main.COMMANDS, "probe", Command(f"{__name__}:probe"))

    def run(*words: str, code: int = 0) -> str:
        found = main.run(words)
        out, err = capsys.readouterr()
        assert found == code, err
        return out if code == 0 else err

    return run


def probed(moldau: Moldau, *words: str) -> tuple[str, Mapping[str, str]]:
    bootstrap, security = json.loads(moldau(*words))
    return bootstrap, security


@pytest.fixture
def prod(moldau: Moldau) -> None:
    moldau(
        *("profile", "create", "prod", "--bootstrap", "prod:1"),
        *("--set", "security.protocol=SASL_SSL", "--set", "sasl.username=ann"),
        *("--set", "sasl.password=p w\\d"),
    )


PROD = {"security.protocol": "SASL_SSL", "sasl.username": "ann", "sasl.password": "p w\\d"}


@pytest.mark.usefixtures("prod")
def test_a_profile_is_readable_by_its_owner_alone(moldau: Moldau, folder: Path) -> None:
    (file,) = folder.glob("profiles/*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.usefixtures("prod")
def test_what_names_a_cluster_more_closely_counts(
    moldau: Moldau, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert probed(moldau, "probe") == (DEFAULT_BOOTSTRAP, {})
    assert probed(moldau, "probe", "--profile", "prod") == ("prod:1", PROD)
    assert probed(moldau, "--profile", "prod", "probe") == ("prod:1", PROD)
    moldau("profile", "use", "prod")
    assert probed(moldau, "probe") == ("prod:1", PROD)
    moldau("profile", "create", "other", "--bootstrap", "other:1")
    monkeypatch.setenv("MOLDAU_PROFILE", "other")
    assert probed(moldau, "probe") == ("other:1", {})
    assert probed(moldau, "probe", "--profile", "prod") == ("prod:1", PROD)
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "environment:1")
    assert probed(moldau, "probe") == ("environment:1", {})
    assert probed(moldau, "probe", "--bootstrap", "option:1") == ("option:1", {})
    monkeypatch.delenv("MOLDAU_BOOTSTRAP")
    monkeypatch.delenv("MOLDAU_PROFILE")
    assert "using no profile" in moldau("profile", "use", "--none")
    assert probed(moldau, "probe") == (DEFAULT_BOOTSTRAP, {})


@pytest.mark.usefixtures("prod")
def test_passwords_of_the_profile_in_use_go_to_no_other_cluster(
    moldau: Moldau, monkeypatch: pytest.MonkeyPatch
) -> None:
    moldau("profile", "use", "prod")
    assert probed(moldau, "probe", "--bootstrap", "elsewhere:1") == ("elsewhere:1", {})
    named = ("--profile", "prod", "--bootstrap", "elsewhere:1")
    assert probed(moldau, "probe", *named) == ("elsewhere:1", PROD)
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "elsewhere:1")
    assert probed(moldau, "probe") == ("elsewhere:1", {})


@pytest.mark.usefixtures("prod")
def test_a_file_takes_the_place_of_what_a_profile_says_of_security(
    moldau: Moldau, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n")
    words = ("probe", "--command-config", str(file), "--profile", "prod")
    assert probed(moldau, *words) == ("prod:1", {"security.protocol": "SSL"})


def test_a_profile_may_name_a_file_and_secrets_that_are_kept_elsewhere(
    moldau: Moldau, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.username=bob\nclient.rack=x\n")
    moldau(
        *("profile", "create", "p", "--bootstrap", "p:1", "--command-config", str(file)),
        *("--set", "sasl.password=${env:SECRET}", "--set", "sasl.username=ann"),
    )
    monkeypatch.setenv("SECRET", "geheim")
    assert probed(moldau, "probe", "--profile", "p")[1] == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.username": "ann",
        "sasl.password": "geheim",
    }
    assert client_options()["client.rack"] == "x"
    assert "sasl.password=${env:SECRET}" in moldau("profile", "show", "p")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_secrets_are_not_shown(moldau: Moldau, form: tuple[str, ...]) -> None:
    jaas = 'org.apache.Plain required username="ann" password="geheim";'
    moldau(
        *("profile", "create", "p", "--bootstrap", "p:1", "--use"),
        *("--set", "sasl.password=geheim", "--set", f"sasl.jaas.config={jaas}"),
        *("--set", "ssl.key.password=geheim", "--set", "basic.auth.user.info=ann:geheim"),
    )
    for shown in (moldau("profile", "show", *form), moldau("profile", "list", *form)):
        assert "geheim" not in shown
    assert "ann" in moldau("profile", "show", "p")


@pytest.mark.parametrize(
    "line",
    [
        r'sasl.jaas.config=x required username="ann" password="a\\"geheim\\"b";',
        'sasl.jaas.config=x required username="ann" password=x clientSecret="geheim";',
        'sasl.jaas.config=x required username="ann" password="geheim',
        "ssl.keystore.of.others.password=geheim",
        "schema.registry.url=https://ann:geheim@registry:8081",
    ],
)
def test_no_part_of_a_secret_is_shown(moldau: Moldau, folder: Path, line: str) -> None:
    moldau("profile", "create", "p", "--bootstrap", "p:1")
    with (folder / "profiles" / "p.properties").open("a") as file:
        file.write(line + "\n")
    assert "geheim" not in moldau("profile", "show", "p")


def test_secrets_may_be_asked_for(moldau: Moldau, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.cli.profile.can_ask", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda text, **options: f"{text}?{options['hide_input']}")
    moldau("profile", "create", "p", "--bootstrap", "p:1", "--ask", "sasl.password", "--use")
    assert probed(moldau, "probe")[1] == {"sasl.password": "sasl.password?True"}


def test_where_nobody_can_be_asked_for_secrets_nothing_is_made(moldau: Moldau) -> None:
    asking = ("profile", "create", "p", "--bootstrap", "p:1", "--ask", "sasl.password")
    assert "nobody can be asked here" in moldau(*asking, code=2)
    assert json.loads(moldau("profile", "list", "--json")) == []


def test_who_is_not_answered_hears_whose_address_it_was(moldau: Moldau) -> None:
    moldau("profile", "create", "away", "--bootstrap", "127.0.0.1:1", "--use")
    assert "of profile away" in moldau("topics", "list", code=1)
    assert "profile" not in moldau("topics", "list", "--bootstrap", "127.0.0.1:1", code=1)


@pytest.mark.usefixtures("prod")
def test_profiles_are_listed_and_deleted(moldau: Moldau) -> None:
    moldau("profile", "use", "prod")
    (row,) = json.loads(moldau("profile", "list", "--json"))
    assert (row["profile"], row["in_use"], row["bootstrap"]) == ("prod", True, "prod:1")
    assert moldau("profile", "list").splitlines()[1].split() == ["*", "prod", "prod:1", "SASL_SSL"]
    moldau("profile", "delete", "prod")
    assert json.loads(moldau("profile", "list", "--json")) == []
    assert probed(moldau, "probe") == (DEFAULT_BOOTSTRAP, {})


@pytest.mark.usefixtures("prod")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("probe", "--profile", "prd"), "there is no profile 'prd'; there are prod"),
        (("profile", "use", "prd"), "there is no profile 'prd'"),
        (("profile", "use"), "--none"),
        (("profile", "show"), "no profile is in use"),
        (("profile", "create", "prod", "--bootstrap", "x:1"), "--replace"),
        (("profile", "create", "a/b", "--bootstrap", "x:1"), "no name of a profile"),
        (("profile", "create", "x"), "say where the cluster is"),
        (
            ("profile", "create", "x", "--bootstrap", "x:1", "--set", "sasl.pasword=x"),
            "did you mean sasl.password?",
        ),
    ],
)
def test_wrong_words_are_explained(moldau: Moldau, words: tuple[str, ...], said: str) -> None:
    assert said in moldau(*words, code=2)


def test_a_wrong_value_is_refused_when_it_is_kept(moldau: Moldau) -> None:
    words = ("profile", "create", "x", "--bootstrap", "x:1", "--set", "security.protocol=TLS")
    assert "security.protocol" in moldau(*words, code=1)
    assert json.loads(moldau("profile", "list", "--json")) == []


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_written_is_what_java_reads(value: str) -> None:
    (read,) = parse_properties(f"name={_escape(value)}")
    assert read.value == value
