"""The last offset of each key, in plain Python; a part of `_codec_pure`.

A dictionary, where `LatestOffsets` in `_codec_native`, the twin in C, has an open table of hashes.
What stays of a batch, and its bytes, are the same. A rule.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TypeAlias

from moldau.records.batch_header import Buffer
from moldau.records.record import Record
from moldau.records.shifted_timestamps import shift_timestamp, split_records

LATEST_KEY_BYTES = 150
"""What an entry of a dictionary from a short key to an offset costs."""

MAX_PLAIN_KEY_BYTES = 32
_SECRET_BYTES = 16
_DIGEST_BYTES = 16

_Key: TypeAlias = bytes | int
"""A key, or the digest of a long one: an integer, so that it never equals a key."""

_Decode = Callable[[Buffer, int, int, int], list[Record]]


class LatestKeys:
    """The twin of `LatestOffsets`; `decode` is `decode_records` of `_codec_pure`."""

    def __init__(self, decode: _Decode, expected_keys: int, secret: bytes) -> None:
        if len(secret) != _SECRET_BYTES:
            raise ValueError(f"the secret has {len(secret)} bytes, not {_SECRET_BYTES}")
        self._decode = decode
        self._secret = secret
        self._offsets: dict[_Key, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def clear(self) -> None:
        self._offsets = {}

    def add(self, payload: Buffer, record_count: int, base_offset: int, from_offset: int) -> None:
        for record in self._decode(payload, record_count, base_offset, 0):
            if record.key is not None and record.offset >= from_offset:
                self._offsets[self._shorten(record.key)] = record.offset

    def select(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        end_offset: int,
        drop_tombstones: bool,
        horizon_ms: int | None,
    ) -> tuple[int, int, bool, bytes | None]:
        records = self._decode(payload, record_count, base_offset, base_timestamp)
        stays = [self._stays(record, end_offset, drop_tombstones) for record in records]
        kept = [record for record, is_kept in zip(records, stays, strict=True) if is_kept]
        if not kept:
            return 0, 0, False, None
        sets_horizon = horizon_ms is not None and any(record.value is None for record in kept)
        max_timestamp = max(record.timestamp_ms for record in kept)
        if not sets_horizon and len(kept) == len(records):
            return len(kept), max_timestamp, False, None
        shift_ms = base_timestamp - (horizon_ms or 0) if sets_horizon else 0
        parts = [
            shift_timestamp(part, shift_ms) if shift_ms else part
            for part, is_kept in zip(split_records(payload, len(records)), stays, strict=True)
            if is_kept
        ]
        return len(kept), max_timestamp, sets_horizon, b"".join(parts)

    def _stays(self, record: Record, end_offset: int, drop_tombstones: bool) -> bool:
        if record.offset >= end_offset:
            return True
        if record.key is None or (record.value is None and drop_tombstones):
            return False
        return self._offsets.get(self._shorten(record.key), -1) <= record.offset

    def _shorten(self, key: bytes) -> _Key:
        if len(key) <= MAX_PLAIN_KEY_BYTES:
            return key
        digest = blake2b(key, digest_size=_DIGEST_BYTES, key=self._secret).digest()
        return int.from_bytes(digest, "big")
