"""Whether a pattern of topic names can be left to the broker (KIP-848), which reads it as RE2.

Python's expressions know more than RE2, and a few words mean something else there. A pattern is
handed over only where both mean the same of every legal topic name; others are matched by the
client, as with the classic protocol. A rule.
"""

from __future__ import annotations

import re
from typing import Final

from moldau.client.rules.subscription import TopicSelection

_INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_SAME_ESCAPE: Final = re.compile(r"\\(?:[dDwWsSbBA]|[^\w\s])")
"""Of classes, word ends, the beginning, and of punctuation that stands for itself. Topic names are
ASCII, of which both say the same."""

_OTHER: Final = re.compile(
    r"""
    \(\?(?!:|P<|i\)|s\))    # looking around, conditions, comments, atomic groups, other flags
    | [*+?}]\+              # possessive
    | \{,                   # from zero, in Python alone
    | \{\d{4,}|,\d{4,}\}    # RE2 counts to a thousand
    | \[:                   # a class of RE2's
    """,
    re.VERBOSE,
)
_PLAIN_FLAGS: Final = re.compile("").flags


def find_broker_pattern(selection: TopicSelection) -> str | None:
    """The pattern as the broker is to read it; None if the client has to match it."""
    allow = selection.allow
    if allow is None or selection.deny is not None or allow.flags & ~(re.I | re.S) != _PLAIN_FLAGS:
        return None
    text = allow.pattern
    if allow.flags & (re.I | re.S) and not text.startswith(("(?i)", "(?s)")):
        return None  # they were given beside the text
    if not selection.with_internal and any(allow.fullmatch(name) for name in _INTERNAL):
        return None  # a broker leaves nothing out
    bare = _SAME_ESCAPE.sub("_", text)
    if "\\" in bare or _OTHER.search(bare):
        return None
    return text
