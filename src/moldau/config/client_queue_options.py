"""The options of clients of queues (share groups), under Kafka's names. See `client_options`."""

from __future__ import annotations

from moldau.config.client_options import ClientOptions
from moldau.config.kinds import BOOLEAN, INT, STRING, at_least, one_of
from moldau.config.option import MINUTE_MS, Importance, option

MIB = 1024 * 1024


class QueueOptions(ClientOptions):
    """The options of `moldau.Queue` and `moldau.AsyncQueue`. What concerns the group as a whole
    (how long records are locked, how often they are delivered, where a new group begins) is set at
    the broker, as the group's `share.*` configs."""

    CALLED = "a queue"
    PARAMETERS = (
        "group",
        "topic",
        "confirm",
        "key_deserializer",
        "value_deserializer",
        "on_unacknowledged",
    )

    max_poll_records = option(
        "max.poll.records",
        INT,
        500,
        "How many records are taken in advance at most. A client begins with few, and takes more "
        "as long as they are dealt with quickly.",
        at_least(1),
        importance=Importance.HIGH,
    )
    share_acquire_mode = option(
        "share.acquire.mode",
        STRING,
        "auto",
        "Whether a broker may give whole batches, which costs it less (batch_optimized), or not "
        "one record more than were asked for (record_limit, KIP-1206). auto: whole batches once "
        "records are dealt with so quickly that max.poll.records are taken in advance. Brokers "
        "before 4.2 give whole batches.",
        one_of("auto", "batch_optimized", "record_limit"),
    )
    fetch_min_bytes = option(
        "fetch.min.bytes",
        INT,
        1,
        "How many bytes a broker collects before it answers, up to fetch.max.wait.ms.",
        at_least(0),
    )
    fetch_max_wait_ms = option(
        "fetch.max.wait.ms",
        INT,
        500,
        "How long a broker waits for records. While jobs are under way it is asked to wait for a "
        "tenth of a second at most: what became of them is told with the next request.",
        at_least(0),
        importance=Importance.LOW,
    )
    fetch_max_bytes = option(
        "fetch.max.bytes",
        INT,
        50 * MIB,
        "How many bytes one answer of a broker has at most; one batch is given in any case.",
        at_least(0),
    )
    check_crcs = option(
        "check.crcs",
        BOOLEAN,
        True,
        "Whether the checksum of each batch is checked. It costs next to nothing.",
        importance=Importance.LOW,
    )
    client_rack = option(
        "client.rack",
        STRING,
        "",
        "The rack of this client, for assignors of the broker that look at it.",
        importance=Importance.LOW,
    )
    default_api_timeout_ms = option(
        "default.api.timeout.ms",
        INT,
        MINUTE_MS,
        "How long to wait for the broker to confirm what became of a record, where that is waited "
        "for.",
        at_least(0),
    )
