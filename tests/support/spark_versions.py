"""What the installed Spark can do: the tests run with 4.0 to 4.3 (`make spark-versions`)."""

from __future__ import annotations

from importlib.metadata import version

import pytest

SPARK = tuple(int(part) for part in version("pyspark").split(".")[:2])

pushes_filters = pytest.mark.skipif(
    SPARK < (4, 1), reason="Spark 4.1 is the first that tells sources in Python about filters"
)
limits_batches = pytest.mark.skipif(
    SPARK < (4, 2), reason="Spark 4.2 is the first in which sources in Python limit their batches"
)
PYSPARKS_OWN_WARNINGS = (
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:unclosed:ResourceWarning:pyspark",
    "ignore:unclosed:ResourceWarning:py4j",
    *(
        ("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",)
        if SPARK < (4, 3)
        else ()
    ),
)
"""Filters for `pytest.mark.filterwarnings`. Older versions leave their sockets to the collector."""

QUERY_SECONDS = 280
"""How long a query may take: on a machine that is busy with many others, minutes."""
