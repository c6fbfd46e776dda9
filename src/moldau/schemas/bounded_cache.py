"""Remembers what was looked up: so much of it and no more, each thing looked up once at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """The entries that were used last. Safe for threads.

    Two threads that want the same thing at the same time have it looked up once. What a look-up
    raises is remembered by nobody here.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._under_way: dict[K, Future[V]] = {}

    def find(self, key: K) -> V | None:
        """Without waiting for anything."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def forget(self, matches: Callable[[K], bool]) -> None:
        with self._lock:
            for key in [one for one in self._kept if matches(one)]:
                del self._kept[key]

    def get(self, key: K, look_up: Callable[[], V]) -> V:
        """What is kept, or else what `look_up` gives, which is kept then."""
        found = self.find(key)
        if found is not None:
            return found
        with self._lock:
            waiting = self._under_way.get(key)
            if waiting is None:
                mine = self._under_way[key] = Future[V]()
        if waiting is not None:
            return waiting.result()  # ends when the look-up does, and that has a limit
        try:
            value = look_up()
        except BaseException as error:
            mine.set_exception(error)
            mine.exception()  # seen: whoever looked it up raises it
            raise
        else:
            self.put(key, value)
            mine.set_result(value)
            return value
        finally:
            with self._lock:
                del self._under_way[key]
