"""Writes figures out as Prometheus reads them: the text format, and OpenMetrics.

A rule: values in, text out. The text comes in pieces, so that whoever writes a long answer can let
others have the loop in between.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and the OpenMetrics
specification. They differ in the names of counters (`# TYPE` names the family without `_total` in
OpenMetrics), in the type of infos, and in the `# EOF` at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from moldau.metrics.figures import Histogram

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_LINES_PER_PIECE: Final = 250


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Metric(NamedTuple):
    """The declaration of a family. `name` is without `_total` and `_info`."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    jmx: str = ""  # what Kafka calls it, if it has it

    @property
    def sample_name(self) -> str:
        """What its samples are called; a histogram's have suffixes of their own."""
        suffix = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}.get(self.kind, "")
        return self.name + suffix


class Exposition:
    """Samples by family, in the order in which families came first."""

    def __init__(self) -> None:
        self._lines: dict[Metric, list[str]] = {}

    def add(self, metric: Metric, value: float, *labels: str) -> None:
        """One sample, with the values of the metric's labels."""
        line = f"{metric.sample_name}{_label_text(metric.labels, labels)} {_number(value)}\n"
        self._lines.setdefault(metric, []).append(line)

    def update(self, other: Exposition) -> None:
        """All samples of another one, of families that this one does not have."""
        self._lines.update(other._lines)

    def add_histogram(self, metric: Metric, histogram: Histogram, *labels: str) -> None:
        lines = self._lines.setdefault(metric, [])
        names = (*metric.labels, "le")
        count = 0
        for bound, count in histogram.cumulative():
            text = _label_text(names, (*labels, _bound(bound)))
            lines.append(f"{metric.name}_bucket{text} {count}\n")
        text = _label_text(metric.labels, labels)
        lines.append(f"{metric.name}_count{text} {count}\n")
        lines.append(f"{metric.name}_sum{text} {_number(histogram.seconds)}\n")

    def pieces(self, *, openmetrics: bool) -> Iterator[str]:
        """The whole text, some hundred lines at a time."""
        piece: list[str] = []
        for metric, lines in self._lines.items():
            kind = metric.kind.value
            name = metric.name if openmetrics else metric.sample_name
            if metric.kind is MetricKind.INFO and not openmetrics:
                kind = "gauge"
            piece.append(f"# HELP {name} {_escape_help(metric.help)}\n# TYPE {name} {kind}\n")
            for first in range(0, len(lines), _LINES_PER_PIECE):
                piece += lines[first : first + _LINES_PER_PIECE]
                if len(piece) >= _LINES_PER_PIECE:
                    yield "".join(piece)
                    piece = []
        if openmetrics:
            piece.append("# EOF\n")
        yield "".join(piece)


def wants_openmetrics(accept: str) -> bool:
    """Whether an `Accept` header asks for it."""
    return any(
        part.split(";")[0].strip() == "application/openmetrics-text" for part in accept.split(",")
    )


def _label_text(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in pairs) + "}"


def _escape(value: str) -> str:
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _bound(seconds: float) -> str:
    return "+Inf" if math.isinf(seconds) else repr(seconds)


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
