"""One file for each API of `wire.apis.SERVED`, under its name.

A handler is imported with the first request for it (`broker.api`): a broker starts
without those that nobody asks for, and without the rooms that only they need. `LOADED_AT_START` are
those of every client.
"""

from importlib import import_module
from types import ModuleType
from typing import Final

from moldau.wire.apis import API_VERSIONS, FETCH, METADATA, PRODUCE, Api

LOADED_AT_START: Final = (API_VERSIONS, METADATA, PRODUCE, FETCH)


def load_handler(api: Api) -> ModuleType:
    return import_module(f"{__name__}.{api.snake_name}")
