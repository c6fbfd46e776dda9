"""The rows as a picture: how many times better Moldau is than each peer, on a logarithmic axis.

Written by hand as SVG, so that it needs nothing and is the same for the same figures. A bar to the
right of the line is ahead, one to the left is behind; the bar is Kafka, other peers are marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log2

from bench.compare import Found
from bench.report import advantage, show

_PEERS = {  # name: title, colour, and the mark's shape
    "kafka-256m": ("Kafka, 256 MB heap", "#6b7280", "circle"),
    "kafka-3-256m": ("Kafka, 256 MB heap", "#6b7280", "circle"),
    "redis": ("Redis Streams", "#b45309", "square"),
    "nats": ("NATS JetStream", "#6d28d9", "diamond"),
    "mock": ("librdkafka's mock", "#0f766e", "triangle"),
}
_AHEAD, _BEHIND = "#2f855a", "#c2410c"
_LINE, _LABELS, _AXIS, _RIGHT = 20, 520, 460, 60
_TOP = 86
_DOUBLINGS = 5  # the axis goes from 1/32 to 32


def draw(found: Sequence[Found]) -> str:
    """A line for each of a row's first two figures: what is done, and what it costs."""
    lines = [
        (one, place)
        for one in found
        for place in range(min(2, len(one.row.figures)))
        if advantage(one, place) is not None
    ]
    width, height = _LABELS + _AXIS + _RIGHT, _TOP + len(lines) * _LINE + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        '<text x="12" y="24" font-size="16" font-weight="600" fill="#111827">'
        "Moldau beside its peers: how many times better</text>",
        *_legend(),
        *_grid(height),
    ]
    last = None
    for number, (one, place) in enumerate(lines):
        y = _TOP + number * _LINE
        parts += _line(one, place, y, with_title=one is not last)
        last = one
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(ratio: float) -> float:
    place = max(-_DOUBLINGS, min(_DOUBLINGS, log2(ratio)))
    return _LABELS + _AXIS / 2 + place * _AXIS / 2 / _DOUBLINGS


def _legend() -> list[str]:
    parts = [
        f'<rect x="12" y="38" width="12" height="12" fill="{_AHEAD}"/>'
        f'<rect x="24" y="38" width="12" height="12" fill="{_BEHIND}"/>'
        '<text x="42" y="48" fill="#374151">ahead of / behind Kafka, 1 GB heap</text>'
    ]
    x = 290
    for title, colour, shape in dict.fromkeys(_PEERS.values()):
        parts.append(_mark(x, 44, colour, shape))
        parts.append(f'<text x="{x + 10}" y="48" fill="#374151">{escape(title)}</text>')
        x += 30 + 7 * len(title)
    return parts


def _grid(height: int) -> list[str]:
    parts = []
    for doubling in range(-_DOUBLINGS, _DOUBLINGS + 1):
        x = _x(2.0**doubling)
        name = f"{2**doubling}" if doubling >= 0 else f"1/{2**-doubling}"
        colour = "#6b7280" if not doubling else "#e5e7eb"
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP - 10}" x2="{x:.1f}" y2="{height - 16}" '
            f'stroke="{colour}"/><text x="{x:.1f}" y="{_TOP - 14}" text-anchor="middle" '
            f'font-size="10" fill="#6b7280">{name}</text>'
        )
    return parts


def _line(found: Found, place: int, y: int, *, with_title: bool) -> list[str]:
    ratio = advantage(found, place) or 1.0
    start, end = sorted((_x(1.0), _x(ratio)))
    colour = _AHEAD if ratio >= 1 else _BEHIND
    middle = y + _LINE / 2
    label = found.row.title if with_title else ""
    parts = [
        f'<text x="12" y="{middle + 4}" fill="#111827">{escape(label)}</text>',
        f'<text x="{_LABELS - 12}" y="{middle + 4}" text-anchor="end" font-size="11" '
        f'fill="#6b7280">{escape(found.row.figures[place].name)}</text>',
        f'<rect x="{start:.1f}" y="{y + 5}" width="{max(1.0, end - start):.1f}" '
        f'height="{_LINE - 10}" fill="{colour}" opacity="0.85"/>',
        f'<text x="{_LABELS + _AXIS + _RIGHT - 10}" y="{middle + 4}" text-anchor="end" '
        f'fill="{colour}">{show(ratio)}</text>',
    ]
    for peer, (_, mark_colour, shape) in _PEERS.items():
        if peer in found.samples:
            other = advantage(found, place, peer)
            if other is not None:
                parts.append(_mark(_x(other), middle, mark_colour, shape))
    return parts


def _mark(x: float, y: float, colour: str, shape: str) -> str:
    size = 4
    corners = {
        "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
        "triangle": ((0, -1.2), (1.1, 1), (-1.1, 1)),
    }
    style = f'fill="{colour}" stroke="#ffffff" stroke-width="0.8"'
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {style}/>'
    points = " ".join(f"{x + dx * size:.1f},{y + dy * size:.1f}" for dx, dy in corners[shape])
    return f'<polygon points="{points}" {style}/>'
