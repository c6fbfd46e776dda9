"""Regular expressions as Java writes them, which is how jobs for Spark's own source have them.

Most of what people write means the same in Python. What is only spelled otherwise is translated;
what Python has no word for is refused, since a pattern that quietly matches something else reads
the wrong topics. A rule.
"""

from __future__ import annotations

import re
from typing import Final

_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_REFERENCE: Final = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>")
_CLASSES: Final = {
    "Alnum": "a-zA-Z0-9",
    "Alpha": "a-zA-Z",
    "ASCII": r"\x00-\x7f",
    "Digit": "0-9",
    "L": "a-zA-Z",
    "Lower": "a-z",
    "Punct": r"!-/:-@\[-`{-~",
    "Space": r" \t\n\x0b\f\r",
    "Upper": "A-Z",
    "XDigit": "0-9a-fA-F",
}
"""Names of topics are ASCII, so that is all that these have to match."""

_UNKNOWN: Final = {
    "h": r"\h",
    "H": r"\H",
    "v": r"\v",
    "V": r"\V",
    "R": r"\R",
    "X": r"\X",
    "G": r"\G",
    "N": r"\N{…}",
}


def translate_java_pattern(text: str) -> str:
    """The same pattern for Python; ValueError says what has no counterpart."""
    parts: list[str] = []
    position = 0
    in_class = False
    while position < len(text):
        taken, position = _translate_token(text, position, in_class)
        if text[position - 1] == "[" and taken == "[":
            if in_class:
                raise ValueError("has a class inside a class, which is Java's alone: write it out")
            in_class = True
        elif taken == "]" and in_class and parts[-1] not in ("[", "[^"):
            in_class = False
        parts.append(taken)
    return "".join(parts)


def _translate_token(text: str, position: int, in_class: bool) -> tuple[str, int]:
    """What stands at a position, for Python, and where the next thing begins."""
    if in_class and text.startswith("&&", position):
        raise ValueError("has &&, the intersection of classes, which is Java's alone: write it out")
    if text.startswith("[^", position) and not in_class:
        return "[", position + 1
    if not in_class and (group := _GROUP.match(text, position)) is not None:
        return f"(?P<{group[1]}>", group.end()
    if text[position] != "\\":
        return text[position], position + 1
    if (reference := _REFERENCE.match(text, position)) is not None:
        return f"(?P={reference[1]})", reference.end()
    return _translate_escape(text, position, in_class)


def _translate_escape(text: str, position: int, in_class: bool) -> tuple[str, int]:
    letter = text[position + 1 : position + 2]
    if letter == "Q":
        quoted, _, _ = text[position + 2 :].partition("\\E")
        end = position + 2 + len(quoted)
        return re.escape(quoted), end + 2 if text.startswith("\\E", end) else end
    if letter in ("p", "P"):
        return _translate_property(text, position, in_class)
    if letter == "z":
        return r"\Z", position + 2
    if letter in _UNKNOWN:
        raise ValueError(f"has {_UNKNOWN[letter]}, which Python does not have: write it out")
    return text[position : position + 2], position + 2


def _translate_property(text: str, position: int, in_class: bool) -> tuple[str, int]:
    found = re.compile(r"\\([pP])(?:\{(\w+)\}|(\w))").match(text, position)
    name = "" if found is None else found[2] or found[3]
    inside = _CLASSES.get(name.removeprefix("Is"))
    if found is None or inside is None or (in_class and found[1] == "P"):
        shown = text[position : position + 12]
        raise ValueError(f"has {shown}, which Python does not have: write the characters out")
    if in_class:
        return inside, found.end()
    return f"[{'^' if found[1] == 'P' else ''}{inside}]", found.end()
