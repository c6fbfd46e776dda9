"""What the module built from Cython offers; see `quick_frames` for the words."""

from collections.abc import Callable, Mapping
from typing import TypeVar
from uuid import UUID

Read = TypeVar("Read")

def read_header(
    frame: memoryview, first_flexible: Mapping[int, int], header_class: type[Read]
) -> tuple[Read, int] | None: ...
def parse_produce(
    version: int,
    frame: memoryview,
    position: int,
    request_class: type[Read],
    topic_class: type[object],
    uuid_of: Callable[[bytes], UUID | None],
) -> Read | None: ...
def parse_fetch(
    version: int,
    frame: memoryview,
    position: int,
    request_class: type[Read],
    topic_class: type[object],
    partition_class: type[object],
    uuid_of: Callable[[bytes], UUID | None],
) -> Read | None: ...
