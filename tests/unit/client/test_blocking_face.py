"""Derived classes: what they say about themselves, and what they do."""

from __future__ import annotations

import inspect
import threading

import pytest

import moldau
from moldau.client.blocking_face import HANDED_IN, BlockingFace
from moldau.errors import ClosedClientError
from stubs import HOMES, path_of, render

DERIVED = {
    moldau.Admin: moldau.AsyncAdmin,
    moldau.Consumer: moldau.AsyncConsumer,
    moldau.SimpleConsumer: moldau.AsyncSimpleConsumer,
}


class AsyncGreeter:
    """Greets."""

    def __init__(self, name: str, *, clock: object = None) -> None:
        self.name = name
        self.is_closed = False

    async def greet(self, greeting: str = "hello") -> str:
        """Say it."""
        return f"{greeting}, {self.name}, {threading.current_thread().name}"

    def rename(self, name: str) -> str:
        self.name = name
        return threading.current_thread().name

    @property
    def thread(self) -> str:
        """Where it runs."""
        return threading.current_thread().name

    async def by_hand(self) -> int:
        return 1

    async def close(self) -> None:
        self.is_closed = True


class Greeter(BlockingFace, of=AsyncGreeter):
    """Greets, and waits."""

    def by_hand(self) -> int:
        return 2


@pytest.mark.parametrize("home", HOMES)
def test_a_stub_says_what_the_asynchronous_class_says(home: str) -> None:
    assert path_of(home).read_text() == render(home), "make stubs"


@pytest.mark.parametrize("blocking", DERIVED, ids=lambda cls: cls.__name__)
def test_a_derived_class_has_the_operations_signatures_and_words_of_its_origin(
    blocking: type,
) -> None:
    origin = DERIVED[blocking]
    names = [name for name in dir(origin) if not name.startswith("_")]
    assert names
    for name in names:
        derived, operation = getattr(blocking, name), getattr(origin, name)
        assert derived.__doc__, f"{name} says nothing of itself"
        if isinstance(operation, property):
            assert isinstance(derived, property), name
            continue
        assert not inspect.iscoroutinefunction(derived), name
        said, meant = inspect.signature(derived), inspect.signature(operation)
        assert said.parameters == meant.parameters, name  # of those written by hand as well
        if derived.__qualname__ == f"{blocking.__name__}.{name}":
            assert said.return_annotation == meant.return_annotation, name
            assert derived.__module__ == blocking.__module__


def test_a_derived_class_is_made_as_its_origin_without_what_the_simulation_hands_in() -> None:
    signature = inspect.signature(moldau.Admin)
    assert list(signature.parameters) == ["bootstrap", "settings", "options"]
    assert inspect.signature(moldau.AsyncAdmin).parameters.keys() & HANDED_IN
    with pytest.raises(TypeError, match="clock"):
        Greeter("Ann", clock=None)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Admin takes no clock"):
        moldau.Admin("127.0.0.1:9092", clock=None)


def test_operations_and_properties_run_on_the_loop_of_the_face() -> None:
    with Greeter("Ann") as greeter:
        assert greeter.greet(greeting="good day") == "good day, Ann, moldau-greeter"
        assert greeter.rename("Bob") == "moldau-greeter"
        assert greeter.greet() == "hello, Bob, moldau-greeter"
        assert greeter.thread == "moldau-greeter"
        assert Greeter.thread.__doc__ == "Where it runs."
        assert greeter.by_hand() == 2


def test_a_closed_face_says_so_and_closes_once() -> None:
    greeter = Greeter("Ann")
    greeter.close()
    greeter.close()
    assert greeter._inner.is_closed
    with pytest.raises(ClosedClientError, match="Greeter"):
        greeter.greet()
    with pytest.raises(ClosedClientError, match="Greeter"):
        greeter.rename("Bob")
