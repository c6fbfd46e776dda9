"""Whether what a running pipeline stands on is installed; asked before it is imported. A shell."""

from __future__ import annotations

from importlib.util import find_spec

from moldau.errors import MissingExtraError


def require_spark() -> None:
    """Raise MissingExtraError, with what to do, unless pyspark and pyarrow can be imported."""
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            raise MissingExtraError(
                f"pipelines need {name}, which is not installed: pip install 'moldau[spark]'"
            )
