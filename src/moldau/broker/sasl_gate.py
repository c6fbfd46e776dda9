"""Stands between a connection of a SASL listener and its pump: no frame passes too early.

A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Final

from moldau.broker.dispatch import RequestPump
from moldau.broker.sasl_session import SaslSession
from moldau.net.port import Connection
from moldau.security.rules.sasl_states import FrameVerdict
from moldau.tasks import TaskSupervisor

_log = logging.getLogger("moldau.broker.security")

_API_KEY: Final = struct.Struct(">h")


class SaslGate:
    """The receiver behind a connection of a SASL listener. Implements `net.port.FrameReceiver`."""

    __slots__ = ("_connection", "_pump", "_session", "_supervisor", "_task")

    def __init__(
        self,
        connection: Connection,
        pump: RequestPump,
        session: SaslSession,
        supervisor: TaskSupervisor,
    ) -> None:
        self._connection = connection
        self._pump = pump
        self._session = session
        self._supervisor = supervisor
        self._task: asyncio.Task[None] | None = None  # a message without headers

    def on_frame(self, frame: memoryview) -> None:
        session = self._session
        if session.is_unlimited:
            self._pump.on_frame(frame)
            return
        api_key = _API_KEY.unpack_from(frame)[0] if len(frame) >= _API_KEY.size else -1
        verdict = session.judge(api_key)
        if verdict is FrameVerdict.RAW_MESSAGE:
            self._task = self._supervisor.spawn(
                f"login of {self._connection.id}", self._answer_raw(bytes(frame))
            )
        elif verdict is FrameVerdict.CLOSE:
            reason = f"API {api_key} before, or without, a login"
            _log.info(
                "closing connection %s of %s: %s",
                self._connection.id,
                self._connection.peer_host,
                reason,
            )
            self._connection.close(reason)
        else:
            self._pump.on_frame(frame)

    async def _answer_raw(self, message: bytes) -> None:
        answer = await self._session.answer_raw(message)
        self._task = None
        if answer is None:
            self._connection.close("the login failed")
        else:
            self._connection.send([answer])

    def on_client_gone(self) -> None:
        self._pump.on_client_gone()

    def on_closed(self) -> None:
        self._session.forget()
        if self._task is not None:
            self._task.cancel()
        self._pump.on_closed()
