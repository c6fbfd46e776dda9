"""How many rows came late, told from the folders that they went to. A rule.

Late rows are loaded like others, into the hour that they belong to; they are counted so that
somebody who has already read that hour can know.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from moldau.spark.pipeline.rules.lake_layout import DATE_COLUMN, HOUR_COLUMN


def count_late(rows_by_folder: Mapping[str, int], *, now: datetime, late_after: timedelta) -> int:
    """Rows in folders, such as `date=2026-11-15/hour=05`, whose time was over so long ago."""
    return sum(
        rows
        for folder, rows in rows_by_folder.items()
        if (end := find_end(folder)) is not None and end + late_after < now
    )


def find_end(folder: str) -> datetime | None:
    """When the day or hour of a folder was over; None when it names none."""
    values = dict(part.split("=", 1) for part in folder.split("/") if "=" in part)
    try:
        day = datetime.strptime(values[DATE_COLUMN], "%Y-%m-%d").replace(tzinfo=UTC)
        if HOUR_COLUMN not in values:
            return day + timedelta(days=1)
        return day + timedelta(hours=int(values[HOUR_COLUMN]) + 1)
    except (KeyError, ValueError, OverflowError):
        return None
