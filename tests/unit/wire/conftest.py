"""Frames are read by a module built from Cython and, whatever is unusual, in Python: one suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.wire import quick_frames


def _find_nothing(*arguments: object) -> None:
    return None


@pytest.fixture(scope="module", params=["native", "pure"])
def each_reader(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both who read frames, one after the other. (Of a module: Hypothesis asks for that.)"""
    if request.param == "native":
        if quick_frames.IMPLEMENTATION != "native":
            pytest.skip("the native module was not built")
        yield "native"
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in ("read_header", "parse_produce", "parse_fetch"):
            patch.setattr(quick_frames, name, _find_nothing)
        yield "pure"
