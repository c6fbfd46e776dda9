"""All that one broker counts. Made first, handed to the rooms that count, read by the endpoint."""

from __future__ import annotations

from moldau.metrics.histogram import Histogram
from moldau.metrics.request_figures import RequestFigures
from moldau.metrics.storage_figures import StorageFigures
from moldau.metrics.topic_traffic import TopicTraffics


class BrokerFigures:
    """Counters of a broker; owned by its event loop."""

    def __init__(self) -> None:
        self.traffics = TopicTraffics()
        self.requests = RequestFigures()
        self.storage = StorageFigures()
        self.loop_delays = Histogram()
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections = 0
        self.unclean_elections = 0
        self.rebalances = 0
        self.certificates_end_ms: int | None = None  # the first of those in use; None without any
