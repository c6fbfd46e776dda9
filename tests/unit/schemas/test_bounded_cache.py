from __future__ import annotations

import threading

import pytest

from moldau.schemas.registry import BoundedCache


def test_what_was_used_last_stays() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.find("a") == 1
    cache.put("c", 3)

    assert (cache.find("a"), cache.find("b"), cache.find("c")) == (1, None, 3)


def test_a_failure_is_raised_and_not_remembered() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)

    def fail() -> int:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        cache.get("a", fail)
    assert cache.get("a", lambda: 5) == 5


def test_two_threads_have_it_looked_up_once() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    begun, go_on = threading.Event(), threading.Event()
    calls: list[int] = []
    found: list[int] = []

    def look_up() -> int:
        calls.append(1)
        begun.set()
        go_on.wait(60)
        return 7

    threads = [
        threading.Thread(target=lambda: found.append(cache.get("a", look_up))) for _ in range(2)
    ]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    go_on.set()
    for one in threads:
        one.join(60)
    assert (found, len(calls)) == ([7, 7], 1)
