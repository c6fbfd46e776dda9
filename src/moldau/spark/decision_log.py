"""The decisions of one query, in the compacted topic `__moldau_spark_commits`. A shell.

Only one driver of a query can decide: whoever opens the log fences all others, because decisions
are written in transactions of one transactional id, and reads what they have decided. From then on
it knows the latest decision without reading: somebody else's could only come after it was fenced.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from moldau.client.admin_values import ConfigResource, NewTopic, OffsetSpec
from moldau.errors import ConfigurationError, KafkaError, TopicExistsError
from moldau.model import TopicPartition
from moldau.spark.rules.batch_decisions import (
    MAX_DECISION_BYTES,
    STATE_PARTITIONS,
    Decision,
    partition_of,
)

if TYPE_CHECKING:
    from moldau.client.blocking import Admin, Producer
    from moldau.client.cluster_client import ClientSettings

STATE_TOPIC: Final = "__moldau_spark_commits"
_REPLICAS: Final = 3
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(2 * MAX_DECISION_BYTES),
    "max.message.bytes": str(MAX_DECISION_BYTES),
}
_PAUSE_SECONDS = 0.1
_CLOSE_SECONDS = 1.0


class DecisionLog:
    """Of one query; belongs to the process that opened it. `latest` is what was decided last."""

    def __init__(
        self,
        query_id: str,
        admin: Admin,
        producer: Producer,
        bootstrap: str,
        settings: ClientSettings,
    ) -> None:
        self._key = query_id.encode()
        self._admin = admin
        self._producer = producer  # with the transactional id of the query's drivers
        self._require_topic()
        self._partition = TopicPartition(STATE_TOPIC, partition_of(query_id))
        # Fences whoever had the log: what it has not decided yet, it never will.
        with producer.transaction():
            pass
        self.latest = self._read(bootstrap, settings)

    def record(self, decision: Decision) -> None:
        """Raises ProducerFencedError when another driver has opened the log since. After any other
        failure the decision may have been recorded: the log is to be opened anew."""
        with self._producer.transaction():
            self._producer.send(
                STATE_TOPIC, decision.encode(), self._key, partition=self._partition.partition
            )
        self.latest = decision

    def close(self) -> None:
        self._producer.close(_CLOSE_SECONDS)

    def _require_topic(self) -> None:
        """The state topic is made when it is missing."""
        found = self._admin.describe_topics([STATE_TOPIC])[STATE_TOPIC]
        if isinstance(found, KafkaError):
            made = self._admin.create_topics([self._new_topic()])[STATE_TOPIC]
            if isinstance(made, KafkaError) and not isinstance(made, TopicExistsError):
                raise made
        count = self._producer.partition_count(STATE_TOPIC)
        if count < STATE_PARTITIONS:
            raise ConfigurationError(
                f"{STATE_TOPIC} has {count} partitions: exactlyOnce=true needs {STATE_PARTITIONS}"
            )
        self._require_compaction()

    def _require_compaction(self) -> None:
        """A decision that retention has deleted is taken again, and its batch is there twice."""
        topic = ConfigResource.topic(STATE_TOPIC)
        found = self._admin.describe_configs([topic], names=["cleanup.policy"])[topic]
        if isinstance(found, KafkaError):
            return  # it may not look
        for entry in found:
            if entry.value != "compact":
                raise ConfigurationError(
                    f"{STATE_TOPIC} has cleanup.policy={entry.value}, so that decisions over "
                    "batches are deleted: exactlyOnce=true needs compact"
                )

    def _new_topic(self) -> NewTopic:
        """As safe as a decision has to be: who loses one writes a batch twice."""
        replicas = min(_REPLICAS, len(self._admin.describe_cluster().brokers))
        in_sync = {"min.insync.replicas": "2"} if replicas == _REPLICAS else {}
        return NewTopic(
            name=STATE_TOPIC,
            partitions=STATE_PARTITIONS,
            replication_factor=replicas,
            configs={**_CONFIGS, **in_sync},
        )

    def _read(self, bootstrap: str, settings: ClientSettings) -> Decision | None:
        from moldau.client.read_table import read_table

        end = self._find_offset(read_committed=False)
        # Another query's transaction may be open before our last decision. It is short, and has a
        # time-out: what lies behind it has to be read.
        while self._find_offset(read_committed=True) < end:
            time.sleep(_PAUSE_SECONDS)
        rows = read_table(
            STATE_TOPIC,
            bootstrap=bootstrap,
            partitions=[self._partition.partition],
            end=end,
            columns=["key", "value"],
            read_committed=True,
            settings=settings,
        )
        values = [
            value
            for key, value in zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)
            if key == self._key
        ]
        return Decision.decode(values[-1]) if values else None

    def _find_offset(self, *, read_committed: bool) -> int:
        wanted = {self._partition: OffsetSpec.LATEST}
        found = self._admin.list_offsets(wanted, read_committed=read_committed)[self._partition]
        if isinstance(found, KafkaError):
            raise found
        return found.offset
