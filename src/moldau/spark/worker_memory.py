"""What a Python worker of Spark keeps from task to task, kept out of the garbage collector's way.

Spark's daemon calls `gc.collect()` after every task of a worker that is used again. The collector
then looks at everything that was ever imported, PySpark, Arrow and this client: 40 ms of work,
which is more than most tasks have. What was there when the first task ended stays for as long as
the worker does, so the collector need not look at it. For the same reason it need not run every
few hundred rows, as it does by default: lists of rows to be written are long. A shell.
"""

from __future__ import annotations

import gc
import os
from typing import Final

_THRESHOLDS: Final = (50_000, 20, 100)

_is_frozen = False


def freeze_once() -> None:
    """To be called when a task is done; does nothing but after the first, and in no other process.

    SPARK_REUSE_WORKER is how Spark's daemon is told that workers serve many tasks.
    """
    global _is_frozen
    if _is_frozen or not os.environ.get("SPARK_REUSE_WORKER"):
        return
    _is_frozen = True
    gc.collect()  # what is garbage now would stay for ever
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
