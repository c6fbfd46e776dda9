"""Whether what is written in Cython was built, for whoever wonders why a broker is slow.

Without it the twins in Python serve (`records/codec.py`, `wire/quick_frames.py`), and nothing else
would tell. Looks at files and imports neither: `moldau --version` must stay quick.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from moldau import __version__

PARTS = ("records/_codec_native", "wire/_frames_native")
PACKAGE = Path(__file__).parents[1]
ADVICE = (
    "the compiled parts are missing, so records are checked in plain Python, some two hundred"
    " times slower; a wheel for this Python has them, and so has an installation with a C compiler"
)


def describe_version() -> str:
    """The answer to `moldau --version`."""
    return f"moldau {__version__}{describe_parts()}"


def describe_parts() -> str:
    """Nothing where all is as it should be."""
    return "" if are_compiled() else " (plain Python: the compiled parts are missing)"


def are_compiled(package: Path = PACKAGE) -> bool:
    """For the Python that runs this: others have names of their own."""
    return all(
        any((package / f"{part}{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
        for part in PARTS
    )
