"""What the handlers of transactional requests share. A rule."""

from __future__ import annotations

from moldau.errors import ErrorCode

_FIRST_WITH_FENCED = 2
"""Of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn; clients before it know a fenced producer by
another code."""


def error_for(error: ErrorCode, version: int) -> ErrorCode:
    if version < _FIRST_WITH_FENCED and error is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    return error
