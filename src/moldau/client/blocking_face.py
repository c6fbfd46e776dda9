"""Derives a blocking class from an asynchronous one, which alone states what each operation does.

    class Admin(BlockingFace, of=AsyncAdmin):
        ...

Every public method of `AsyncAdmin` becomes one of `Admin` that waits for its answer on a loop in a
thread of its own, with the same name, signature and docstring. What a class writes itself, or
inherits from a class above `BlockingFace`, is not derived.

Type checkers and editors do not see derived methods, so a module with derived classes has a stub
beside it (`.pyi`). `make stubs` writes them; `make lint` finds one that is not up to date.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from functools import wraps
from types import FunctionType, TracebackType
from typing import Any, ClassVar, Protocol, Self, TypeVar
from weakref import WeakSet

from moldau.errors import ClosedClientError, InvariantViolation

T = TypeVar("T")

HANDED_IN = frozenset({"network", "clock", "random", "workers"})
"""What the simulation hands to asynchronous classes. Blocking ones take the system's."""


class BlockingFace:
    """The asynchronous object, and the thread that it runs in. Safe from any thread."""

    made_of: ClassVar[type]

    def __init_subclass__(cls, *, of: type | None = None, **others: object) -> None:
        super().__init_subclass__(**others)
        if of is None:
            return
        cls.made_of = of
        if "__init__" not in vars(cls):
            cls.__init__ = _derive_init(cls)  # type: ignore[method-assign]
        for name, operation in find_operations(cls):
            setattr(cls, name, _derive(cls, operation))

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._inner = self.made_of(*arguments, **options)
        self._loop = LoopThread(f"moldau-{type(self).__name__.lower()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End connections and thread; a second call does nothing."""
        if self._loop.is_open:
            self._loop.run(self._inner.close())
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop do the work of an operation, and wait for it."""
        if not self._loop.is_open:
            work.close()
            raise ClosedClientError(f"the {type(self).__name__} is closed")
        return self._loop.run(work)

    def _call(self, work: Callable[[], T]) -> T:
        """Have the loop call an operation that does not wait."""

        async def call() -> T:
            return work()

        return self._run(call())


def find_operations(cls: type[BlockingFace]) -> Iterator[tuple[str, FunctionType | property]]:
    """The public methods and properties of the asynchronous class that the blocking one lacks."""
    known = {name for base in cls.__mro__ for name in vars(base)}
    for base in cls.made_of.__mro__:
        for name, member in vars(base).items():
            if name.startswith("_") or name in known:
                continue
            if isinstance(member, FunctionType | property):
                known.add(name)
                yield name, member


def _derive(cls: type[BlockingFace], operation: FunctionType | property) -> object:
    if isinstance(operation, property):
        return property(
            lambda self: self._call(lambda: operation.__get__(self._inner)), doc=operation.__doc__
        )
    if inspect.iscoroutinefunction(operation):

        @wraps(operation)
        def derived(self: BlockingFace, *arguments: Any, **options: Any) -> object:
            return self._run(operation(self._inner, *arguments, **options))

    else:

        @wraps(operation)
        def derived(self: BlockingFace, *arguments: Any, **options: Any) -> object:
            return self._call(lambda: operation(self._inner, *arguments, **options))

    return _place(derived, cls)


def _derive_init(cls: type[BlockingFace]) -> Callable[..., None]:
    full = inspect.signature(cls.made_of.__init__)  # type: ignore[misc]
    signature = full.replace(
        parameters=[one for name, one in full.parameters.items() if name not in HANDED_IN]
    )

    @wraps(cls.made_of.__init__)  # type: ignore[misc]
    def derived(self: BlockingFace, *arguments: Any, **options: Any) -> None:
        strange = HANDED_IN & options.keys()
        if strange:
            raise TypeError(f"{cls.__name__} takes no {', '.join(sorted(strange))}")
        try:
            signature.bind(self, *arguments, **options)
        except TypeError as error:
            has_kafkas_name = "bootstrap_servers" in options
            hint = "; bootstrap_servers is called bootstrap here" if has_kafkas_name else ""
            raise TypeError(f"{cls.__name__}: {error}{hint}") from None
        super(cls, self).__init__(*arguments, **options)

    derived.__signature__ = signature  # type: ignore[attr-defined]
    return _place(derived, cls)


def _place(derived: Callable[..., T], cls: type) -> Callable[..., T]:
    """Name the function as one of its class is named: for `help`, and in messages."""
    derived.__module__ = cls.__module__
    derived.__qualname__ = f"{cls.__qualname__}.{derived.__name__}"
    return derived


# The thread is a daemon: a program that forgets to close it can still end. But it would lose what
# it sent last, without a word. So clients that are watched are closed when the process ends, which
# may take some seconds; and they are told when it forks.


_EXIT_SECONDS = 10.0


class LoopThread:
    """Runs from construction until `close`. Safe to use from any thread but its own."""

    def __init__(self, name: str = "moldau-client") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return not self._loop.is_closed()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, where waiting for the loop would never end."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work; its future may be waited for, or cancelled, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Have a function called on the loop."""
        self._loop.call_soon_threadsafe(callback)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work and wait for its result. An interrupted wait cancels the work."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is running and end the thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self.submit(self._cancel_everything()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_everything(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Watched(Protocol):
    """A client with a thread, as far as the process is concerned."""

    def on_fork(self) -> None: ...

    def close(self, timeout_seconds: float | None = None) -> None: ...


_watched: WeakSet[Watched] = WeakSet()


def watch(client: Watched) -> None:
    _watched.add(client)


def _on_fork() -> None:
    for client in tuple(_watched):
        client.on_fork()


def _on_exit() -> None:
    for client in tuple(_watched):
        client.close(_EXIT_SECONDS)


atexit.register(_on_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends: whatever it waits for blocks the thread instead."""
    try:
        work.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    raise InvariantViolation("something was awaited where a thread has to wait")


class ClosedAtExit(ABC):
    """Used with `async with`, and closed at its end, whatever the end was."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None: ...
