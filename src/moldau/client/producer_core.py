"""What both faces of the producer have inside: intake, rules and sender, put together.

`AsyncProducer` runs it on its user's loop, `Producer` on a loop in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeAlias

from moldau.client.batch_promises import BatchPromise
from moldau.client.cluster_client import ClusterClient
from moldau.client.intake import Intake
from moldau.client.option_settings import client_settings
from moldau.client.producer_topics import ProducerTopics
from moldau.client.producer_values import Interceptor
from moldau.client.record_preparer import RecordPreparer, Serializer
from moldau.client.rules.accumulator import Accumulator, BatchLimits
from moldau.client.rules.batch_delivery import BatchDelivery
from moldau.client.rules.partitioners import (
    Partitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
)
from moldau.client.rules.producer_batches import MakePromise
from moldau.client.rules.topic_target import TopicTarget
from moldau.client.rules.verdicts import RetryPolicy
from moldau.client.sender import Sender
from moldau.clock import Clock, SystemClock
from moldau.config.client_options import ACKS_NONE, ProducerOptions
from moldau.errors import (
    BufferFullError,
    ClosedClientError,
    ConfigurationError,
    MoldauError,
    TopicNotReadyError,
)
from moldau.net.port import Network
from moldau.records.record import RecordRow
from moldau.workers import Workers

Schedule: TypeAlias = Callable[[Callable[[], None]], object]
"""Has a function called on the producer's loop soon."""

CustomPartitioner: TypeAlias = Callable[[str, bytes | None, bytes | None, int], int]
"""Chooses a partition from topic, key, value and the number of partitions."""


class ProducerCore:
    """One producer without its face."""

    def __init__(
        self,
        bootstrap: str,
        options: ProducerOptions,
        *,
        make_promise: MakePromise[BatchPromise],
        schedule: Schedule,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: str | CustomPartitioner = "sticky",
        interceptors: Sequence[Interceptor] = (),
        network: Network | None = None,
        clock: Clock | None = None,
        workers: Workers | None = None,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self.preparer = RecordPreparer(self.clock, key_serializer, value_serializer, interceptors)
        self.custom_partitioner = partitioner if callable(partitioner) else None
        self._schedule = schedule
        self.is_awake = False  # whether the sender will look around soon anyway
        settings = client_settings(options, timeout_ms=options.max_block_ms)
        client = ClusterClient(
            bootstrap, settings, network=network, clock=self.clock, random=random
        )
        self.accumulator: Accumulator[BatchPromise] = Accumulator(_limits(options), make_promise)
        self.intake = Intake(self.accumulator, self.clock, self.wake)
        self.topics = ProducerTopics(
            client,
            self.intake,
            self.accumulator,
            options,
            _choose_partitioner(partitioner, client.random),
        )
        delivery = BatchDelivery(
            self.accumulator, _policy(options), client.settings.backoff, client.random.random
        )
        self._sender = Sender(client, delivery, self.intake, self.topics, options, workers)

    # Called by any thread

    def wake(self) -> None:
        """Have the sender look around soon."""
        if not self.is_awake:
            self.is_awake = True
            self._schedule(self._pump)

    def choose_partition(self, target: TopicTarget[BatchPromise], row: RecordRow) -> int | None:
        """What the user's own partitioner chooses, if there is one."""
        if self.custom_partitioner is None:
            return None
        count = len(target.queues)
        partition = self.custom_partitioner(target.topic, row[-3], row[-2], count)
        target.require_queue(partition)
        return partition

    def hurry(self, promise: BatchPromise) -> None:
        """Do not let a batch linger, because somebody waits for it."""
        with self.intake.lock:
            queue = self.accumulator.queue_of(promise.partition)
            batch = queue.open
            if batch is None or batch.promise is not promise:
                return
            self.accumulator.close_batch(batch)
        self.wake()

    def no_room(self) -> BufferFullError:
        return BufferFullError(
            f"the {self.options.buffer_memory} bytes of buffer.memory are used up: records come "
            "faster than brokers take them"
        )

    def not_ready(self, topic: str) -> TopicNotReadyError:
        return TopicNotReadyError(
            f"the partitions of topic {topic!r} are not known yet; send the first record with "
            "`await producer.send(...)`"
        )

    # Called on the loop

    def begin(self) -> None:
        self._sender.begin()

    def _pump(self) -> None:
        self.is_awake = False
        self._sender.pump()

    async def flush(self, timeout_seconds: float | None = None) -> None:
        if not await self._sender.flush(timeout_seconds):
            raise TimeoutError(f"not everything was sent within {timeout_seconds:g} seconds")

    async def close(self, timeout_seconds: float | None) -> None:
        """Send what was collected, then end; what is left after the time fails."""
        closed = ClosedClientError("the producer is closed")
        self.intake.refuse(closed)
        await self._sender.flush(timeout_seconds)
        self.fail(ClosedClientError("the producer was closed before the record was confirmed"))
        await self._sender.close()

    def fail(self, error: MoldauError) -> None:
        self._sender.fail(error)


def _limits(options: ProducerOptions) -> BatchLimits:
    # Without idempotence nothing would keep a later batch from overtaking one that is sent again.
    may_overlap = options.enable_idempotence or not options.retries or options.acks == ACKS_NONE
    in_flight = options.max_in_flight_requests_per_connection
    return BatchLimits(
        batch_bytes=min(options.batch_size, options.max_request_size),
        linger_seconds=options.linger_ms / 1000,
        delivery_seconds=options.delivery_timeout_ms / 1000,
        memory_bytes=options.buffer_memory,
        request_bytes=options.max_request_size,
        most_under_way=in_flight if may_overlap else 1,
        is_idempotent=options.enable_idempotence,
    )


def _policy(options: ProducerOptions) -> RetryPolicy:
    return RetryPolicy(
        retries=options.retries,
        is_idempotent=options.enable_idempotence,
        retries_lost_requests=options.acks != ACKS_NONE,
    )


def _choose_partitioner(name: str | CustomPartitioner, random: Random) -> Callable[[], Partitioner]:
    if callable(name) or name == "sticky":
        return lambda: StickyPartitioner(random.randrange)
    if name == "round_robin":
        return RoundRobinPartitioner
    raise ConfigurationError(
        f"no partitioner is called {name!r}; there are sticky, round_robin, or a function of "
        "topic, key, value and the number of partitions"
    )
