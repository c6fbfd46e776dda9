"""Administration: topics, settings, offsets, disks, groups, transactions, users of a cluster.

Methods for many things at once answer for each of them: with what was asked for, or with the
error as a value. A failure of the whole request is raised. The operations are stated by the
parts that `AsyncAdmin` inherits from; the blocking face is `blocking.Admin`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from random import Random

from moldau.client.admin.access import AclAdmin, QuotaAdmin, TokenAdmin, UserAdmin
from moldau.client.admin.configs import ConfigAdmin
from moldau.client.admin.groups import GroupAdmin, ShareGroupAdmin
from moldau.client.admin.offsets import measure_lag
from moldau.client.admin.partitions import LogAdmin, PlacementAdmin
from moldau.client.admin.topics import TopicAdmin
from moldau.client.admin.transactions import TransactionAdmin
from moldau.client.admin.values import ClusterDescription, PartitionLag, SpokenVersions
from moldau.client.blocking_face import ClosedAtExit
from moldau.client.cluster import ClientSettings, ClusterClient, client_settings
from moldau.client.rules.arguments import require_kind
from moldau.clock import Clock
from moldau.config.client_options import AdminOptions
from moldau.errors import ClientError, ConfigurationError, KafkaError
from moldau.model import TopicPartition
from moldau.net.port import Network
from moldau.wire.apis import APIS


class AsyncAdmin(
    ClosedAtExit,
    TopicAdmin,
    ConfigAdmin,
    LogAdmin,
    PlacementAdmin,
    GroupAdmin,
    ShareGroupAdmin,
    TransactionAdmin,
    AclAdmin,
    QuotaAdmin,
    TokenAdmin,
    UserAdmin,
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
        random: Random | None = None,
        **options: object,
    ) -> None:
        if settings is None:
            read = AdminOptions.read(options)
            settings = client_settings(read, timeout_ms=read.default_api_timeout_ms)
        elif options:
            raise ConfigurationError("give either settings or options, not both")
        require_kind(settings, ClientSettings, "settings", "ClientSettings")
        client = ClusterClient(bootstrap, settings, network=network, clock=clock, random=random)
        super().__init__(client)

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

    async def describe_versions(
        self, broker_ids: Collection[int] | None = None
    ) -> Mapping[int, SpokenVersions | ClientError]:
        """What these brokers speak, or all of them; why one cannot be asked."""
        if broker_ids is None:
            broker_ids = tuple((await self._client.metadata.refresh(())).brokers)
        answers = await asyncio.gather(*map(self._ask_versions, broker_ids))
        return dict(zip(broker_ids, answers, strict=True))

    async def _ask_versions(self, broker_id: int) -> SpokenVersions | ClientError:
        try:
            connection = await self._client.connect_to_broker(broker_id)
        except ClientError as error:
            return error
        apis = {
            APIS[key].name if key in APIS else str(key): served
            for key, served in connection.versions.items()
        }
        return SpokenVersions(apis=apis, features=connection.features)

    async def measure_lag(
        self, positions: Mapping[TopicPartition, int | None]
    ) -> Mapping[TopicPartition, PartitionLag | KafkaError]:
        """How far positions, of a group or of anybody, are behind the ends of their partitions."""
        # Imported here: it brings the codecs of records, which nothing else of this has a use for.

        return await measure_lag(self._client, positions)
