"""The message browser's address: where it begins and what it looks for, so that a link shows the
same records to somebody else. Rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode


@dataclass(frozen=True, slots=True, kw_only=True)
class Browsing:
    """What the controls say. At most one of `offset`, `time` and `is_live`; none is the newest."""

    partition: int | None = None
    offset: int | None = None
    time: str | None = None
    is_live: bool = False
    search: str = ""
    opens: bool = False  # the record at the offset, not only the list from there on

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Browsing:
        """Whatever stands in an address: what is no number counts as nothing."""
        offset = read_number(query.get("offset"))
        return cls(
            partition=read_number(query.get("partition")),
            offset=offset,
            time=query.get("time") if offset is None else None,
            is_live="live" in query and offset is None and "time" not in query,
            search=query.get("search", ""),
            opens="open" in query and offset is not None,
        )

    def path(self, topic: str) -> str:
        query: dict[str, str] = {}
        if self.partition is not None:
            query["partition"] = str(self.partition)
        if self.offset is not None:
            query["offset"] = str(self.offset)
        elif self.time is not None:
            query["time"] = self.time
        elif self.is_live:
            query["live"] = "1"
        if self.search:
            query["search"] = self.search
        if self.opens:
            query["open"] = "1"
        words = urlencode(query, quote_via=quote)
        return f"/topics/{quote(topic, safe='')}" + (f"?{words}" if words else "")


def read_number(text: str | None) -> int | None:
    """A partition or an offset; None for what is none, however long it is."""
    if text is None or not (text.isascii() and text.isdecimal() and len(text) < 20):
        return None
    return int(text)
