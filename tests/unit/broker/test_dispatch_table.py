"""The dispatch table is what is in the folder, and kio knows every version that it names."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map

from moldau.broker import handlers
from moldau.broker.dispatch import DispatchTable
from moldau.broker.handlers import load_handler
from moldau.metrics.figures import RequestFigures
from moldau.wire.apis import APIS, HEARTBEAT, SERVED, Api
from moldau.wire.headers import RequestHeader
from moldau.workers import InlineWorkers, Workers

HANDLERS = [load_handler(api) for api in SERVED]


def test_every_handler_in_the_folder_is_served():
    folder = Path(handlers.__file__).parent
    in_folder = {path.stem for path in folder.glob("*.py")} - {"__init__"}

    assert {api.snake_name for api in SERVED} == in_folder


@pytest.mark.parametrize("module", HANDLERS, ids=lambda module: module.API.name)
def test_a_handler_serves_versions_that_kio_knows(module):
    api = module.API

    assert api_key_map[api.key] == api.name
    assert {api.first, api.last} <= set(schema_name_map[api.name])
    assert 0 <= api.first <= api.last
    first, last = APIS[api.key].advertised
    assert 0 <= first <= api.first <= api.last == last


@pytest.mark.parametrize("module", HANDLERS, ids=lambda module: module.API.name)
def test_a_handler_says_which_versions_it_serves(module):
    assert f"{module.API.last}" in module.__doc__.splitlines()[0]


def header_of(api: Api, version: int) -> RequestHeader:
    return RequestHeader(api.key, version, 1, None)


def load(table: DispatchTable, *headers: RequestHeader, workers: Workers | None = None) -> None:
    async def all_at_once() -> None:
        await asyncio.gather(*(table.load(one, workers or InlineWorkers()) for one in headers))

    asyncio.run(all_at_once())


def test_versions_outside_the_range_have_no_handler():
    table = DispatchTable(RequestFigures())

    assert table.find(RequestHeader(0, 3, 1, None)) is not None
    for key, version in ((0, 2), (0, 99), (999, 0), (HEARTBEAT.key, 99)):
        header = RequestHeader(key, version, 1, None)
        assert table.find(header) is None
        assert not table.is_served(header)


def test_a_handler_is_found_once_it_is_loaded():
    table = DispatchTable(RequestFigures())
    header = header_of(HEARTBEAT, HEARTBEAT.served[1])

    assert table.find(header) is None
    assert table.is_served(header)
    load(table, header)
    handler = table.find(header)
    assert handler is not None
    assert handler.module is load_handler(HEARTBEAT)


def test_each_version_is_prepared_with_its_first_request():
    table = DispatchTable(RequestFigures())
    first, last = HEARTBEAT.served
    load(table, header_of(HEARTBEAT, last))

    assert table.find(header_of(HEARTBEAT, first)) is None


class CountingWorkers(InlineWorkers):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.failures = 0  # still to come

    async def run(self, work: Callable[[], Any]) -> Any:
        self.count += 1
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise ImportError("the file is gone")
        return work()


def test_many_that_ask_for_the_same_have_it_loaded_once():
    table, workers = DispatchTable(RequestFigures()), CountingWorkers()
    headers = [header_of(HEARTBEAT, HEARTBEAT.served[1])] * 20

    load(table, *headers, workers=workers)
    load(table, *headers, workers=workers)

    assert workers.count == 1


def test_who_waited_for_another_tries_it_when_that_one_fails():
    table, workers = DispatchTable(RequestFigures()), CountingWorkers()
    workers.failures = 1
    header = header_of(HEARTBEAT, HEARTBEAT.served[1])

    async def story() -> list[object]:
        asked = (table.load(header, workers) for _ in range(3))
        return await asyncio.gather(*asked, return_exceptions=True)

    failed, *others = asyncio.run(story())

    assert isinstance(failed, ImportError)
    assert others == [None, None]
    assert table.find(header) is not None


def test_api_versions_answers_to_every_version():
    table = DispatchTable(RequestFigures())
    unknown = RequestHeader(18, 99, 1, None)
    assert table.is_served(unknown)
    load(table, unknown)
    assert table.find(unknown) is not None
