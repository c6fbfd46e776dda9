"""Administration: topics, settings, offsets, disks, groups and transactions of a cluster.

Methods for many things at once answer for each of them: with what was asked for, or with the error
as a value. A failure of the whole request is raised. The operations are stated by the parts that
`AsyncAdmin` inherits from; the blocking face is `blocking.Admin`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from moldau.client.admin_acls import AclAdmin
from moldau.client.admin_configs import ConfigAdmin
from moldau.client.admin_groups import GroupAdmin
from moldau.client.admin_logs import LogAdmin
from moldau.client.admin_placement import PlacementAdmin
from moldau.client.admin_quotas import QuotaAdmin
from moldau.client.admin_shares import ShareGroupAdmin
from moldau.client.admin_topics import TopicAdmin
from moldau.client.admin_transactions import TransactionAdmin
from moldau.client.admin_values import ClusterDescription
from moldau.client.cluster_client import ClientSettings, ClusterClient
from moldau.client.group_values import PartitionLag
from moldau.client.option_settings import client_settings
from moldau.clock import Clock
from moldau.config.client_options import AdminOptions
from moldau.errors import ConfigurationError, KafkaError
from moldau.model import TopicPartition
from moldau.net.port import Network


class AsyncAdmin(
    TopicAdmin,
    ConfigAdmin,
    LogAdmin,
    PlacementAdmin,
    GroupAdmin,
    ShareGroupAdmin,
    TransactionAdmin,
    AclAdmin,
    QuotaAdmin,
):
    """Administers one cluster; used by the tasks of one loop. `async with` closes it.

    Options are Kafka's, with underscores for dots: `default_api_timeout_ms=5000`.
    """

    def __init__(
        self,
        bootstrap: str,
        settings: ClientSettings | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        **options: object,
    ) -> None:
        if settings is None:
            read = AdminOptions.read(options)
            settings = client_settings(read, timeout_ms=read.default_api_timeout_ms)
        elif options:
            raise ConfigurationError("give either settings or options, not both")
        super().__init__(ClusterClient(bootstrap, settings, network=network, clock=clock))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connections; a second call does nothing."""
        await self._client.close()

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its controller and its brokers."""
        found = await self._client.metadata.refresh(())
        return ClusterDescription(
            cluster_id=found.cluster_id,
            controller_id=found.controller_id,
            brokers=tuple(found.brokers[broker_id] for broker_id in sorted(found.brokers)),
        )

    async def measure_lag(
        self, positions: Mapping[TopicPartition, int | None]
    ) -> Mapping[TopicPartition, PartitionLag | KafkaError]:
        """How far positions, of a group or of anybody, are behind the ends of their partitions."""
        # Imported here: it brings the codecs of records, which nothing else of this has a use for.
        from moldau.client.lag import measure_lag

        return await measure_lag(self._client, positions)
