"""Records as Arrow tables: what `moldau[arrow]` adds.

Import it where it is needed, not at the top of a module: pyarrow is large, and the core does
without.
"""

from __future__ import annotations

from moldau.errors import MissingExtraError

try:
    import pyarrow as pyarrow
except ImportError as error:
    raise MissingExtraError(
        "Arrow tables need pyarrow, which is not installed: pip install 'moldau[arrow]'"
    ) from error
