"""Names for what clients push, as Prometheus wants them, and the families that they make. A rule.

`org.apache.kafka.producer.request.latency.avg` becomes
`moldau_client_producer_request_latency_avg`, with the client and its attributes as labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from moldau.metrics.exposition import Metric, MetricKind
from moldau.metrics.otlp import PushedPoint

PREFIX: Final = "moldau_client_"
_THEIR_PREFIX: Final = "org.apache.kafka."
_STRANGE = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED: Final = ("_total", "_count", "_sum", "_bucket", "_created", "_info")
_CLIENT_LABELS: Final = ("client_id", "client_instance_id", "client_software")
_MOST_LABEL_BYTES: Final = 200


class ClientSeries(NamedTuple):
    """One number of one client."""

    name: str
    is_counter: bool
    labels: Mapping[str, str]
    value: float


def name_series(point: PushedPoint, client: Mapping[str, str]) -> ClientSeries:
    """`client` has the labels of `_CLIENT_LABELS`."""
    bare = _STRANGE.sub("_", point.name.removeprefix(_THEIR_PREFIX))
    if point.is_counter:
        bare = bare.removesuffix("_total")
    elif bare.endswith(_RESERVED):
        bare += "_value"
    labels = {_STRANGE.sub("_", key): text for key, text in point.attributes.items()}
    labels = {key: text for key, text in labels.items() if key and not key[0].isdigit()}
    labels.pop("le", None)
    cut = {key: text[:_MOST_LABEL_BYTES] for key, text in {**labels, **client}.items()}
    return ClientSeries(PREFIX + bare, point.is_counter, cut, point.value)


def group_series(
    series: Iterable[ClientSeries],
) -> Iterator[tuple[Metric, list[tuple[tuple[str, ...], float]]]]:
    """Families with their samples: the values of the labels, and the number.

    All samples of a family have the same labels; an empty one is as good as none. Where clients do
    not agree whether something is a counter, it is none.
    """
    by_name: dict[str, list[ClientSeries]] = {}
    for one in series:
        by_name.setdefault(one.name, []).append(one)
    for name, some in sorted(by_name.items()):
        others = sorted({key for one in some for key in one.labels} - set(_CLIENT_LABELS))
        names = (*_CLIENT_LABELS, *others)
        is_counter = all(one.is_counter for one in some)
        kind = MetricKind.COUNTER if is_counter else MetricKind.GAUGE
        unique = {tuple(one.labels.get(key, "") for key in names): one.value for one in some}
        yield (
            Metric(name, kind, "Pushed by clients (KIP-714).", names),
            list(unique.items()),
        )
