"""Puts the quotas of one broker together: what the metadata says is in force from then on."""

from __future__ import annotations

from collections.abc import Callable

from moldau.clock import Clock
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.quotas import ClientQuotas, QuotaWindows


def connect_quotas(
    clock: Clock, options: Callable[[], BrokerOptions], publisher: MetadataPublisher
) -> ClientQuotas:
    def windows() -> QuotaWindows:
        now = options()
        return QuotaWindows(
            burst_seconds=now.quota_window_size_seconds,
            mutation_burst_seconds=(
                now.controller_quota_window_num * now.controller_quota_window_size_seconds
            ),
            fetch_burst_seconds=max(1, now.quota_window_num - 1) * now.quota_window_size_seconds,
        )

    quotas = ClientQuotas(clock, windows)

    def on_image(former: MetadataImage, image: MetadataImage, _: frozenset[str]) -> None:
        if image.quotas != former.quotas:
            quotas.apply(image.quotas)

    publisher.subscribe(on_image)
    return quotas
