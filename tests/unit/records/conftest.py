"""Every test that takes `codec` runs on both twins."""

from __future__ import annotations

import importlib

import pytest

from moldau.records.codec import RecordCodec


@pytest.fixture(params=["native", "pure"])
def codec(request: pytest.FixtureRequest) -> RecordCodec:
    try:
        module = importlib.import_module(f"moldau.records._codec_{request.param}")
    except ImportError:
        pytest.skip("the native record codec is not built")
    return module
