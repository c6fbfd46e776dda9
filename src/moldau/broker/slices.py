"""Large answers in slices: thousands of elements are encoded without holding up the loop.

A shell. What an answer says may change between two slices, so whoever makes one takes what it reads
from once (an image, a list) or says that its elements are of different moments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from moldau.broker.api import ServedApi
from moldau.wire.layout import element_class_of
from moldau.wire.shape import EncodedArray
from moldau.wire.values_writer import encode_values
from moldau.wire.versions import response_class

if TYPE_CHECKING:
    from kio.static.protocol import Entity


class Slices:
    """Counts the pieces of one answer and lets others have the loop after every `size` of them."""

    __slots__ = ("_left", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size

    async def piece_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._left = self._size
            await asyncio.sleep(0)


def answered_class(api: ServedApi, version: int, *arrays: str) -> type[Entity]:
    """The class of the elements of an array of an answer; of an array inside those, and so on."""
    found: type[Entity] = response_class(api.key, version)
    for name in arrays:
        found = element_class_of(found, name)
    return found


def encode_element(
    element_class: type[Entity], values: Mapping[str, object], api: ServedApi
) -> bytes:
    return encode_values(element_class, values, api.droppable)


async def encode_array(
    element_class: type[Entity],
    rows: Iterable[Mapping[str, object]],
    api: ServedApi,
    slices: Slices,
) -> EncodedArray:
    """The elements in slices; `rows` is lazy where making the values takes long too."""
    elements = []
    for row in rows:
        elements.append(encode_element(element_class, row, api))
        await slices.piece_done()
    return EncodedArray(elements)
