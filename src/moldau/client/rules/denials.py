"""Says how what a broker refused can be granted. A rule: values in, values out.

A Moldau broker tells who lacks what wherever the protocol has room for a message; then the command
that grants it is known. Elsewhere, and with other brokers, only what it is about.
"""

from __future__ import annotations

import re
from shlex import quote
from typing import Final

_LACKS: Final = re.compile(
    r"(?P<who>.+) lacks (?P<operation>[A-Za-z]+) on (?P<type>[A-Za-z]+):(?P<name>.*)", re.DOTALL
)

_NAMED: Final = re.compile(r"\b(?P<type>topic|group) (?P<quote>['\"]?)(?P<name>[^'\":]+)(?P=quote)")
"""What an answer without a message is about, in the words of the client."""

_SOMEBODY: Final = "the principal"
"""Who asked, where the broker does not say who that is."""

CLUSTER: Final = "Cluster:kafka-cluster"

_OPTIONS: Final = {
    "Topic": "--topic",
    "Group": "--group",
    "Cluster": "--cluster",
    "TransactionalId": "--transactional-id",
}


def lacking(operation: str, resource: str) -> str:
    """What a denial without a message means, where only one right can be missing: `Describe`,
    `Topic:clicks`."""
    return f"{_SOMEBODY} lacks {operation} on {resource}"


def explain_denial(words: str) -> str:
    """The message of a denial with what an administrator can do about it."""
    found = _LACKS.search(words)
    if found is None or found["type"] not in _OPTIONS:
        named = _NAMED.search(words)
        resource = "" if named is None else f" --{named['type']} {quote(named['name'])}"
        return (
            f"{words}; an administrator grants it with `moldau acls add --allow-principal "
            f"User:NAME --operation OPERATION{resource}`"
        )
    resource = _OPTIONS[found["type"]]
    if found["type"] != "Cluster":
        resource += f" {quote(found['name'])}"
    who = found["who"].rpartition(": ")[2] or found["who"]
    who = "User:NAME" if who == _SOMEBODY else quote(who)
    return (
        f"{words}; an administrator grants it with `moldau acls add --allow-principal "
        f"{who} --operation {found['operation'].lower()} {resource}`"
    )
