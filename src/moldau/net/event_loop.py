"""The event loop of a broker: asyncio's, with a short way from the kernel to a connection.

From a socket that has bytes to whoever reads them asyncio takes five calls of Python: a key is
looked up and put into a list, its handle is queued, taken out again and run in a context. With
hundreds of connections that each bring one small request that is a tenth of what a request costs.
Here whoever was given to `add_reader` or `add_writer` is called as soon as the kernel has told of
the socket, and nothing is made on the way.

What differs for these callbacks: they have no context of their own, and come before what was due in
the same turn already. A failure goes to the loop's exception handler, as ever. asyncio's own
transports, pipes and signals are not called this way, and neither are callbacks with arguments.

Linux alone has epoll; elsewhere `new_event_loop` gives asyncio's loop as it is. A shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import select
import selectors
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVarTuple, cast

_HAS_EPOLL: Final = hasattr(select, "epoll")
_IN: Final = getattr(select, "EPOLLIN", 1)
_OUT: Final = getattr(select, "EPOLLOUT", 4)
_END_OF_THE_LOOP: Final = (SystemExit, KeyboardInterrupt)
"""Whatever else a callback raises is told and nothing more, as ever: also a `CancelledError`, which
the loop would take for its own."""

Ts = TypeVarTuple("Ts")
Callback = Callable[[], object]
OnFailure = Callable[[BaseException], None]


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


Watched = int | _HasDescriptor
Ready = list[tuple[selectors.SelectorKey, int]]


class ReadySelector(selectors.BaseSelector):
    """Calls who watches a descriptor directly; what asyncio has registered is returned to it.

    Invariant: a descriptor is in `_keys`, or in `_readers` and `_writers`, or in none.
    """

    def __init__(self, on_failure: OnFailure) -> None:
        self._epoll = select.epoll()
        self._on_failure = on_failure
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}

    # Who is called directly

    def add_reader(self, descriptor: int, callback: Callback) -> None:
        self._add(self._readers, descriptor, callback)

    def add_writer(self, descriptor: int, callback: Callback) -> None:
        self._add(self._writers, descriptor, callback)

    def remove_reader(self, descriptor: int) -> bool:
        return self._remove(self._readers, descriptor)

    def remove_writer(self, descriptor: int) -> bool:
        return self._remove(self._writers, descriptor)

    def _add(self, watchers: dict[int, Callback], descriptor: int, callback: Callback) -> None:
        former = self._events_of(descriptor)
        is_new = descriptor not in watchers
        watchers[descriptor] = callback
        if not is_new:
            return
        try:
            if former:
                self._epoll.modify(descriptor, _IN | _OUT)
            else:
                self._epoll.register(descriptor, self._events_of(descriptor))
        except OSError:
            del watchers[descriptor]
            raise

    def _remove(self, watchers: dict[int, Callback], descriptor: int) -> bool:
        if watchers.pop(descriptor, None) is None:
            return False
        left = self._events_of(descriptor)
        with contextlib.suppress(OSError):  # it may be closed already
            if left:
                self._epoll.modify(descriptor, left)
            else:
                self._epoll.unregister(descriptor)
        return True

    def _events_of(self, descriptor: int) -> int:
        readable = _IN if descriptor in self._readers else 0
        return readable | (_OUT if descriptor in self._writers else 0)

    # What asyncio asks for

    def register(self, fileobj: Watched, events: int, data: object = None) -> selectors.SelectorKey:
        descriptor = descriptor_of(fileobj)
        key = selectors.SelectorKey(fileobj, descriptor, events, data)
        self._epoll.register(descriptor, _to_epoll(events))
        self._keys[descriptor] = key
        return key

    def unregister(self, fileobj: Watched) -> selectors.SelectorKey:
        key = self._keys.pop(descriptor_of(fileobj))
        with contextlib.suppress(OSError):  # it may be closed already
            self._epoll.unregister(key.fd)
        return key

    def modify(self, fileobj: Watched, events: int, data: object = None) -> selectors.SelectorKey:
        key = self._keys[descriptor_of(fileobj)]
        if events != key.events:
            self._epoll.modify(key.fd, _to_epoll(events))
        key = self._keys[key.fd] = key._replace(events=events, data=data)
        return key

    def get_map(self) -> Mapping[Watched, selectors.SelectorKey]:
        return self._keys  # type: ignore[return-value]  # asyncio asks with descriptors

    def close(self) -> None:
        self._epoll.close()
        for watchers in (self._keys, self._readers, self._writers):
            watchers.clear()

    def select(self, timeout: float | None = None) -> Ready:
        """Wait; call who watches directly, return the others."""
        ready: Ready = []
        readers = self._readers
        for descriptor, event in self.poll(timeout):
            callback = readers.get(descriptor)
            if callback is None or event != _IN:
                self._see_to(descriptor, event, ready)
                continue
            try:
                callback()
            except _END_OF_THE_LOOP:
                raise
            except BaseException as failure:  # noqa: BLE001 one connection's bug, as in asyncio
                self._on_failure(failure)
        return ready

    def poll(self, timeout: float | None) -> Sequence[tuple[int, int]]:
        """What the kernel tells. It counts in whole milliseconds; nobody is woken too early."""
        if timeout is not None:
            timeout = math.ceil(timeout * 1e3) * 1e-3 if timeout > 0 else 0
        return self._epoll.poll(timeout, max(1, len(self._keys) + len(self._readers)))

    def _see_to(self, descriptor: int, event: int, ready: Ready) -> None:
        """An event of asyncio's, or one that is not simply input."""
        key = self._keys.get(descriptor)
        if key is not None:
            is_writable = selectors.EVENT_WRITE if event & ~_IN else 0
            is_readable = selectors.EVENT_READ if event & ~_OUT else 0
            ready.append((key, (is_writable | is_readable) & key.events))
            return
        # A callback may have removed those behind it, or itself.
        for is_meant, watchers in ((event & ~_OUT, self._readers), (event & ~_IN, self._writers)):
            callback = watchers.get(descriptor) if is_meant else None
            if callback is not None:
                try:
                    callback()
                except _END_OF_THE_LOOP:
                    raise
                except BaseException as failure:  # noqa: BLE001 as above
                    self._on_failure(failure)


def descriptor_of(watched: Watched) -> int:
    return watched if isinstance(watched, int) else watched.fileno()


def _to_epoll(events: int) -> int:
    readable = _IN if events & selectors.EVENT_READ else 0
    return readable | (_OUT if events & selectors.EVENT_WRITE else 0)


class ReadyLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self._ready_selector = ReadySelector(self._on_failure)
        super().__init__(self._ready_selector)

    def _on_failure(self, failure: BaseException) -> None:
        message = "Exception in a callback of add_reader or add_writer"
        self.call_exception_handler({"message": message, "exception": failure})

    # asyncio itself uses these methods for `sock_recv` and its like: with arguments, and to remove
    # what it has registered without them.

    def add_reader(self, fd: Watched, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        descriptor = descriptor_of(fd)
        if args:
            super().add_reader(descriptor, callback, *args)
        else:
            self._ready_selector.add_reader(descriptor, cast("Callback", callback))

    def remove_reader(self, fd: Watched) -> bool:
        descriptor = descriptor_of(fd)
        is_direct = self._ready_selector.remove_reader(descriptor)
        return is_direct or super().remove_reader(descriptor)

    def add_writer(self, fd: Watched, callback: Callable[[*Ts], Any], *args: *Ts) -> None:
        descriptor = descriptor_of(fd)
        if args:
            super().add_writer(descriptor, callback, *args)
        else:
            self._ready_selector.add_writer(descriptor, cast("Callback", callback))

    def remove_writer(self, fd: Watched) -> bool:
        descriptor = descriptor_of(fd)
        is_direct = self._ready_selector.remove_writer(descriptor)
        return is_direct or super().remove_writer(descriptor)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """For `asyncio.Runner` of a broker's process."""
    return ReadyLoop() if _HAS_EPOLL else asyncio.new_event_loop()
