"""What a person looks for among records. Rules.

Keys, values and headers are searched as they were written, byte by byte: of compressed or encoded
values only what stands in them in plain text is found. Regular expressions are RE2's, whose time
grows with the length of a value and nothing else: nobody can hold up a console with one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from moldau.errors import ConfigurationError

_MOST_CHARACTERS = 1_000
_PROGRAM_BYTES = 1 << 20
NOT_INSTALLED = "regular expressions need an extra: pip install 'moldau[regex]'"

Finds = Callable[[bytes], bool]
Headers = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A text or a pattern, and where to look. Upper and lower case of ASCII are the same unless
    `match_case` says otherwise."""

    text: str
    in_key: bool = True
    in_value: bool = True
    in_headers: bool = False
    match_case: bool = False
    is_pattern: bool = False

    def compile(self) -> RecordSearch:
        """Raises ConfigurationError when it is no pattern."""
        if len(self.text) > _MOST_CHARACTERS:
            raise ConfigurationError(f"at most {_MOST_CHARACTERS:,} characters can be looked for")
        return RecordSearch(self, self._pattern() if self.is_pattern else self._plain())

    def _plain(self) -> Finds:
        needle = self.text.encode()
        if self.match_case:
            return lambda data: needle in data
        needle = needle.lower()
        return lambda data: needle in data.lower()

    def _pattern(self) -> Finds:
        try:
            import re2  # an extra, and needed by few
        except ImportError:
            raise ConfigurationError(NOT_INSTALLED) from None
        options = re2.Options()
        options.log_errors = False
        options.case_sensitive = self.match_case
        options.max_mem = _PROGRAM_BYTES
        try:
            pattern: Any = re2.compile(self.text, options)
        except re2.error as error:
            reason = error.args[0]
            words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise ConfigurationError(f"{self.text!r} is no regular expression: {words}") from None
        return lambda data: pattern.search(data) is not None


class RecordSearch:
    """A search that is ready to be asked."""

    def __init__(self, wanted: Search, finds: Finds) -> None:
        self._wanted = wanted
        self._finds = finds

    def finds(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> bool:
        wanted, finds = self._wanted, self._finds
        if wanted.in_key and key is not None and finds(key):
            return True
        if wanted.in_value and value is not None and finds(value):
            return True
        return wanted.in_headers and any(
            finds(name.encode()) or (data is not None and finds(data)) for name, data in headers
        )
