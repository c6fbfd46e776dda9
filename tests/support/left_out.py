"""What a test run left out, and how to get it: said in short at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

HOW_TO_GET_IT = {
    "chromium is not installed": "apt install chromium, on Debian and Ubuntu",
    "kcat is not installed": "apt install kcat, on Debian and Ubuntu; brew install kcat",
    "hadolint is not installed": "make docs, which installs and runs it",
    "kubernetes-validate is not installed": "make docs, which installs and runs it",
    "check-jsonschema is not installed": "make docs, which installs and runs it",
    "systemd-analyze is not installed": "apt install systemd, on Debian and Ubuntu",
    "Spark's Kafka connector": "install mvn, then make interop",
    "Maven": "make interop where Maven's repository can be reached",
    "Java": "pip install --group test, which make test does, brings one",
    "could not import": "pip install --group test, which make test does",
    "the native record codec is not built": "a C compiler, then make test in a fresh folder",
    "network namespaces": "run as root, on Linux with iproute2",
    "time namespaces": "run as root, on Linux",
    "mount": "run as root, on Linux",
}
"""By a part of the reason; a reason without an entry says it itself."""


def describe(reasons: Iterable[str]) -> list[str]:
    """A line for each reason, the most frequent first."""
    counted = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    return [f"{count}: {_with_advice(reason)}" for reason, count in counted.most_common()]


def _with_advice(reason: str) -> str:
    advice = next((how for part, how in HOW_TO_GET_IT.items() if part in reason), None)
    return reason if advice is None else f"{reason} ({advice})"
