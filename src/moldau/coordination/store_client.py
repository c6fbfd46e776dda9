"""Connections of a `StoreSession` to a store that is served over a Unix socket. A shell."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from moldau.coordination.store_codec import decode_answer, encode_request
from moldau.coordination.store_messages import ToClient, ToService
from moldau.coordination.store_session import StoreGoneError
from moldau.coordination.store_socket import StoreSocket

_log = logging.getLogger("moldau.coordination")


class StoreSocketConnection:
    """One way to the service: the `StoreConnection` of a session."""

    def __init__(
        self,
        connected: socket.socket,
        deliver: Callable[[ToClient], None],
        on_broken: Callable[[], None],
    ) -> None:
        self.is_broken = False
        self._deliver = deliver
        self._on_broken = on_broken
        self._socket = StoreSocket(connected, self._receive, self._break)

    def send(self, message: ToService) -> None:
        self._socket.send(encode_request(message))

    def give_up(self) -> None:
        self.is_broken = True
        self._socket.close()

    def _receive(self, frame: bytes) -> None:
        self._deliver(decode_answer(frame))

    def _break(self, _: str) -> None:
        self.is_broken = True
        self._on_broken()


class SocketConnector:
    """Connects, as often as a session wants. `on_gone` hears when nobody serves there any more."""

    def __init__(self, path: str, on_gone: Callable[[], None]) -> None:
        self._path = path
        self._on_gone = on_gone

    def __call__(
        self, deliver: Callable[[ToClient], None], on_broken: Callable[[], None]
    ) -> StoreSocketConnection | None:
        try:
            connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # no descriptor is left: one may be at the next attempt
            _log.warning("no connection to the coordination store: %s", error)
            return None
        connecting.setblocking(False)
        try:
            connecting.connect(self._path)  # a Unix socket connects at once or not at all
        except (ConnectionRefusedError, FileNotFoundError) as error:
            # The process that listened has ended, and the sessions with it; or its socket was
            # removed: then the supervisor makes another one, and starts this broker again.
            connecting.close()
            self._on_gone()
            raise StoreGoneError(f"nobody serves the coordination store at {self._path}") from error
        except BlockingIOError:  # too many wait to be accepted: the server is held up
            connecting.close()
            return None
        except OSError as error:
            connecting.close()
            _log.warning("no connection to the coordination store: %s", error)
            return None
        return StoreSocketConnection(connecting, deliver, on_broken)
