"""What a measurement gives, how several are put together, and how they are shown. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from moldau.errors import UsageError

PERCENTILES = (50.0, 95.0, 99.0, 99.9)

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?(?:/s|ps)?\Z", re.IGNORECASE)
_FACTORS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One measurement: how much was done in which time, and how long single things took."""

    count: int  # records or requests
    size_bytes: int
    seconds: float
    latencies_ms: Mapping[str, float]  # by the name of the percentile; empty where not measured

    @property
    def per_second(self) -> float:
        return self.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def megabytes_per_second(self) -> float:
        return self.size_bytes / self.seconds / 1e6 if self.seconds > 0 else 0.0

    def values(self) -> dict[str, float]:
        """All that can be compared, by name."""
        found = {"per_second": self.per_second}
        if self.size_bytes:
            found["megabytes_per_second"] = self.megabytes_per_second
        return {**found, **{f"{name}_ms": value for name, value in self.latencies_ms.items()}}


def percentiles_ms(samples: Sequence[tuple[float, int]]) -> dict[str, float]:
    """Of seconds, each of which counts for so many things; in milliseconds, with the maximum."""
    ordered = sorted(samples)
    total = sum(weight for _, weight in ordered)
    if not total:
        return {}
    found: dict[str, float] = {}
    for wanted in PERCENTILES:
        rank, seen = math.ceil(total * wanted / 100), 0
        for seconds, weight in ordered:
            seen += weight
            if seen >= rank:
                found[f"p{wanted:g}"] = seconds * 1000
                break
    found["max"] = ordered[-1][0] * 1000
    return found


def middle(rounds: Sequence[Figures]) -> dict[str, float]:
    """The median of each value over several rounds."""
    names = [name for name in rounds[0].values() if all(name in one.values() for one in rounds)]
    return {name: median(one.values()[name] for one in rounds) for name in names}


def parse_rate(text: str) -> float:
    """Bytes per second of `200MB/s`, `1.5 GiB/s` or `800k`."""
    found = _RATE.match(text.strip())
    if found is None or not float(found[1]):
        raise UsageError(f"{text!r} is no rate; give one like 200MB/s, 1.5GB/s or 800kB/s")
    return float(found[1]) * _FACTORS[found[2].lower()]


def rate_text(rate: float) -> str:
    """Bytes per second in a unit of their size."""
    for factor, unit in ((1e6, "MB/s"), (1e3, "kB/s")):
        if rate >= factor:
            return f"{rate / factor:,.4g} {unit}"
    return f"{rate:,.4g} B/s"


def show_value(name: str, value: float) -> str:
    if name == "per_second":
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def title_of(name: str, counted: str) -> str:
    """What a value is called in a table."""
    if name == "per_second":
        return f"{counted}/s"
    return "MB/s" if name == "megabytes_per_second" else name.replace("_ms", " ms")
