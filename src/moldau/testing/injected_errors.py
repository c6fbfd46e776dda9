"""Errors on request: the next answers of an API are what a test wants a client to be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.config.option import suggest
from moldau.errors import KafkaError, MalformedFrameError
from moldau.net.port import Connection
from moldau.testing.error_answers import error_answer
from moldau.testing.seeded_faults import Fault, FaultTable
from moldau.wire.apis import SERVED
from moldau.wire.headers import read_request_header

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

InjectedError = type[KafkaError] | type[ConnectionResetError] | str | int
"""One of `moldau.errors`, or Kafka's name or number of it; `ConnectionResetError` ends the
connection instead."""


class InjectedErrors:
    """Which requests are answered with an error instead of by the broker."""

    def __init__(self) -> None:
        self._faults: FaultTable[ErrorCode | None] = FaultTable()
        self._apis = {api.key: api.snake_name for api in SERVED}

    def add(
        self, api: str, error: InjectedError, *, times: int | None, broker_id: int | None, skip: int
    ) -> Fault[ErrorCode | None]:
        known = set(self._apis.values())
        if api not in known:
            hint = suggest(api, known) or f"; there are {', '.join(sorted(known))}"
            raise ValueError(f"{api!r} is no API{hint}")
        subject = "*" if broker_id is None else str(broker_id)
        return self._faults.add(api, _code_of(error), matching=subject, skip=skip, count=times)

    def intercept(self, broker_id: int, connection: Connection, frame: memoryview) -> bool:
        """Whether the request was answered here."""
        try:
            header, position = read_request_header(frame)
        except MalformedFrameError:
            return False  # the broker's matter; it may be a message of SASL without headers
        name = self._apis.get(header.api_key, "")
        fault = self._faults.find_fault(name, str(broker_id))
        if fault is None:
            return False
        if fault.outcome is None:
            connection.close("as the test wants it")
        else:
            connection.send(error_answer(frame, header, position, fault.outcome))
        return True


def _code_of(error: InjectedError) -> ErrorCode | None:
    codes = type(KafkaError.code)
    if isinstance(error, str):
        names = [code.name for code in codes]
        if error.lower() not in names:
            raise ValueError(f"{error!r} is no error of Kafka{suggest(error.lower(), names)}")
        return codes[error.lower()]
    if isinstance(error, int):
        return codes(error)  # says itself which number it does not know
    return error.code if issubclass(error, KafkaError) else None
