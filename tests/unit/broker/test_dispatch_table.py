"""The dispatch table is what is in the folder, and kio knows every version that it names."""

from pathlib import Path

import pytest
from kio.schema.index import api_key_map, schema_name_map

from moldau.broker import handlers
from moldau.broker.dispatch import DispatchTable
from moldau.broker.handlers import HANDLERS
from moldau.wire.headers import RequestHeader


def test_every_handler_in_the_folder_is_served():
    folder = Path(handlers.__file__).parent
    in_folder = {path.stem for path in folder.glob("*.py")} - {"__init__"}

    assert {module.API.name for module in HANDLERS} == in_folder


@pytest.mark.parametrize("module", HANDLERS, ids=lambda module: module.API.name)
def test_a_handler_serves_versions_that_kio_knows(module):
    api = module.API

    assert api_key_map[api.key] == api.name
    assert {api.first, api.last} <= set(schema_name_map[api.name])
    assert 0 <= api.advertised_first <= api.first <= api.last


@pytest.mark.parametrize("module", HANDLERS, ids=lambda module: module.API.name)
def test_a_handler_says_which_versions_it_serves(module):
    assert f"{module.API.last}" in module.__doc__.splitlines()[0]


def test_versions_outside_the_range_have_no_handler():
    table = DispatchTable(HANDLERS)

    assert table.find(RequestHeader(0, 3, 1, None)) is not None
    assert table.find(RequestHeader(0, 2, 1, None)) is None
    assert table.find(RequestHeader(0, 99, 1, None)) is None
    assert table.find(RequestHeader(999, 0, 1, None)) is None


def test_api_versions_answers_to_every_version():
    assert DispatchTable(HANDLERS).find(RequestHeader(18, 99, 1, None)) is not None
