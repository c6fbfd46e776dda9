"""Reads what a metrics endpoint writes, as far as findings need it. A rule.

Samples of one name are summed up over their labels. Buckets of a histogram are kept by their
bounds: `name_bucket{le="0.5"}`.
"""

from __future__ import annotations

import re

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \S+)?\Z")
_BOUND = re.compile(r'(?:^|,)le="([^"]*)"')


def read_metrics(text: str) -> dict[str, float]:
    """The sums, by name; what is no sample is passed over."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found is None:
            continue
        name, labels, value = found.groups()
        bound = _BOUND.search(labels or "")
        key = name if bound is None else f'{name}{{le="{bound[1]}"}}'
        try:
            sums[key] = sums.get(key, 0.0) + float(value)
        except ValueError:
            continue
    return sums
