"""Transforms that pipeline files name as `click_shapes:function`. Each makes a frame of a frame."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def add_site(clicks: DataFrame) -> DataFrame:
    """Adds the part of the site that a page belongs to: `/shop` of `/shop/shoes`."""
    return clicks.withColumn("site", F.concat(F.lit("/"), F.split("page", "/")[1]))
