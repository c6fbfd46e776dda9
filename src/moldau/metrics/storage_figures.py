"""What is counted of logs: flushes, compaction, deletions. Owned by the event loop."""

from __future__ import annotations

from moldau.metrics.histogram import Histogram


class StorageFigures:
    """Of all logs of a broker."""

    __slots__ = (
        "cleaned_bytes_after",
        "cleaned_bytes_before",
        "cleaner_runs",
        "cleaner_seconds",
        "deleted_bytes",
        "deleted_segments",
        "flushes",
        "uncleanable",
    )

    def __init__(self) -> None:
        self.flushes = Histogram()
        self.cleaner_runs = 0  # logs compacted
        self.cleaner_seconds = 0.0
        self.cleaned_bytes_before = 0
        self.cleaned_bytes_after = 0
        self.uncleanable = 0  # logs that the cleaner leaves alone, since they are damaged
        self.deleted_segments = 0
        self.deleted_bytes = 0
