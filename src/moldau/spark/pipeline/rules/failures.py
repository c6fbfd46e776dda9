"""What Spark says of a failure, in a message. A rule.

Spark's messages carry stack traces of two languages; what tells the reason is what somebody wrote:
the text given to `raise_error`, the end of a traceback, or else the first line.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

_RAISED = re.compile(r"^(?P<kind>[\w.]+(?:Error|Exception)): (?P<said>[^\n]+)", re.MULTILINE)
_OWN_KIND = "moldau."
_USER_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<said>[^\n]+?)(?: SQLSTATE: \w+)?(?:\n|$)")
_SQLSTATE = re.compile(r" SQLSTATE: \w+")
_STREAM_HEAD = re.compile(r"\[STREAM_FAILED\] [^\n]*? terminated with exception: ")
_LONGEST = 600
_NO_SPACE = re.compile(r"No space left on device|not enough space on the disk", re.IGNORECASE)
_OUTAGE = re.compile(
    r"moldau\.errors\.(?:BrokerUnreachable|ClusterUnreachable|ConnectionLost|NoAnswer"
    r"|DeliveryTimeout|OperationTimeout|LeaderNotAvailable|NotLeader|Storage)Error: "
)


def is_outage(text: str) -> bool:
    """Whether a query ended because its cluster did not answer for too long; that may pass."""
    return _OUTAGE.search(text) is not None


class Loss(NamedTuple):
    """A query that has lost its cluster, perhaps not for the first time, after some batch."""

    batch_id: int
    since_seconds: float

    def again(self, batch_id: int, now_seconds: float) -> Loss:
        """It is lost once more: for as long as before unless it has done something in between."""
        return self if batch_id == self.batch_id else Loss(batch_id, now_seconds)


def lost_its_disk(offline_replicas: Collection[int], brokers: Collection[int]) -> bool:
    """Whether a broker that is there has a replica offline: then it has lost the disk for it."""
    return not set(brokers).isdisjoint(offline_replicas)


def explain_failure(name: str, text: str) -> str:
    """One message about a query or pipeline that failed."""
    if _NO_SPACE.search(text):
        return (
            f"{name} failed: the disk is full: that of the checkpoint, of a lake, or of Spark's "
            "temporary files; make room and start it again: it goes on where it was"
        )
    told = _USER_RAISED.search(text)
    if told is not None:
        return f"{name} failed: {_shorten(told['said'])}"
    raised = list(_RAISED.finditer(text)) if "Traceback (most recent call last)" in text else []
    if raised:
        own = [one for one in raised if _is_own(one)]
        return f"{name} failed: {_describe_raised((own or raised)[-1])}"
    body = _STREAM_HEAD.sub("", text.strip())
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    first = next((line for line in lines if not line.startswith(("at ", "==", "File "))), "")
    return f"{name} failed: {_shorten(first) or 'Spark does not say why'}"


def _describe_raised(found: re.Match[str]) -> str:
    """What Moldau raises is a message; of others, the kind of the error is a part of it."""
    return _shorten(found["said"] if _is_own(found) else f"{found['kind']}: {found['said']}")


def _is_own(found: re.Match[str]) -> bool:
    return found["kind"].startswith(_OWN_KIND)


def _shorten(text: str) -> str:
    clean = _SQLSTATE.sub("", text).strip()
    return clean if len(clean) <= _LONGEST else clean[:_LONGEST] + " ..."
