"""`moldau tokens create`: a file that cannot take the secret is told before there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.cli.main import run


@pytest.mark.parametrize("name", ["there.properties", "no/folder.properties"])
def test_no_token_is_made_whose_secret_could_not_be_kept(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.properties").touch()
    nobody = "127.0.0.1:1"
    words = ["tokens", "create", "--out", str(tmp_path / name), "--bootstrap", nobody]
    assert run(words) == 2
    assert "--out" in capsys.readouterr().err
