from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from moldau.cli.main import PARTS, are_compiled
from moldau.records import codec
from moldau.wire import quick_frames


def test_what_is_told_is_what_serves() -> None:
    native = [codec.IMPLEMENTATION == "native", quick_frames.IMPLEMENTATION == "native"]
    assert are_compiled() == all(native)


def test_a_part_for_another_python_does_not_count(tmp_path: Path) -> None:
    for part in PARTS:
        (tmp_path / part).parent.mkdir()
        (tmp_path / f"{part}.cpython-39-x86_64-linux-gnu.so").touch()
    assert not are_compiled(tmp_path)
    for part in PARTS:
        assert not are_compiled(tmp_path)
        (tmp_path / f"{part}{EXTENSION_SUFFIXES[0]}").touch()
    assert are_compiled(tmp_path)
