"""Which class and reader an API and version have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from moldau.errors import UnsupportedVersionError
from moldau.wire.versions import reader_of, request_class, response_class


@pytest.mark.parametrize(("api_key", "version"), [(999, 0), (3, 99), (0, 2), (-1, 0)])
def test_a_version_that_kio_has_not_is_unsupported(api_key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        request_class(api_key, version)
    with pytest.raises(UnsupportedVersionError):
        response_class(api_key, version)


def test_classes_and_readers_are_looked_up_once() -> None:
    request = request_class(18, 3)
    assert request.__name__ == "ApiVersionsRequest"
    assert request_class(18, 3) is request
    assert response_class(18, 3) is response_class(18, 3)
    assert reader_of(request) is reader_of(request)


_LIST_API_MODULES = """
import pkgutil, sys
import moldau.wire
for module in pkgutil.iter_modules(moldau.wire.__path__):
    __import__("moldau.wire." + module.name)
shared = {"errors", "index", "types", "request_header", "response_header"}
loaded = {name.split(".")[2] for name in sys.modules if name.startswith("kio.schema.")}
print(sorted(loaded - shared))
"""


def test_importing_the_room_loads_no_api_of_kio() -> None:
    listing = subprocess.run(
        [sys.executable, "-c", _LIST_API_MODULES], capture_output=True, text=True, check=True
    )
    assert listing.stdout.strip() == "[]"
