"""docs/client.md as a program: its blocks of Python, in order, against a broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import moldau.testing

GUIDE = Path(__file__).parents[2] / "docs" / "client.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_guide_runs_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(blocks) > 8
    names: dict[str, object] = {}
    with moldau.testing.broker() as broker:
        for block in blocks:
            code = block.replace("127.0.0.1:9092", broker.bootstrap)
            exec(compile(code, str(GUIDE), "exec"), names)
    assert "no-such-topic" in capsys.readouterr().out
