"""Which class and reader an API and version have.

Answers for looking these up, fast and lazily: kio has a module for each version of each API, and
loading them all takes seconds. Which versions
the broker serves and the client speaks is in `apis`. kio itself is loaded with the first of them:
the messages that every client sends are read by hand.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from moldau.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from kio.serial.readers import Reader
    from kio.static.protocol import Payload


@cache
def request_class(api_key: int, version: int) -> type[Payload]:
    """The class of the request; loads its module on the first call."""
    from kio.index import KioIndexError, load_request_schema

    try:
        return load_request_schema(api_key, version)
    except KioIndexError as error:
        raise UnsupportedVersionError(f"API {api_key} has no version {version}") from error


@cache
def response_class(api_key: int, version: int) -> type[Payload]:
    """The class of the response; loads its module on the first call."""
    from kio.index import KioIndexError, load_response_schema

    try:
        return load_response_schema(api_key, version)
    except KioIndexError as error:
        raise UnsupportedVersionError(f"API {api_key} has no version {version}") from error


@cache
def reader_of(entity_class: type[Payload]) -> Reader[Payload]:
    """kio's native reader: called with a read-only buffer and a position."""
    from kio.serial import entity_reader

    return entity_reader(entity_class)
