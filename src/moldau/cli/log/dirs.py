"""`moldau log dirs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from moldau.client.admin_values import LogDirDescription, ReplicaOnDisk
    from moldau.errors import KafkaError

    Described = Mapping[int, tuple[LogDirDescription | KafkaError, ...]]


def dirs(
    broker: Annotated[
        list[int] | None,
        typer.Option(
            metavar="ID", help="Only of this broker; repeat for more.", show_default="all"
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only replicas of this topic; repeat for more.", show_default="all"
        ),
    ] = None,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Show the replicas in each directory, too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the log directories of brokers: what is in them, how full they are, what moves there.

    A replica that moves between two directories of its broker is in both until it has arrived: in
    the new one as a future replica, with the offsets that it is behind.
    """
    from moldau.cli.session import end_with, with_admin
    from moldau.errors import KafkaError

    described = with_admin(bootstrap, lambda admin: admin.describe_log_dirs(broker))
    topics = None if topic is None else set(topic)
    if as_json:
        _print_json(described, topics)
    else:
        _print_tables(described, topics, replicas)
    end_with(each for rows in described.values() for each in rows if isinstance(each, KafkaError))


def _chosen(described: LogDirDescription, topics: set[str] | None) -> list[ReplicaOnDisk]:
    return sorted(
        (one for one in described.replicas if topics is None or one.partition.topic in topics),
        key=lambda one: (one.partition, one.is_future),
    )


def _print_json(described: Described, topics: set[str] | None) -> None:
    from moldau.cli.output import print_document
    from moldau.errors import KafkaError

    print_document(
        [
            {"broker": broker_id, "error": str(each)}
            if isinstance(each, KafkaError)
            else {
                "broker": broker_id,
                "path": each.path,
                "total_bytes": each.total_bytes,
                "usable_bytes": each.usable_bytes,
                "replicas": [
                    {
                        "topic": one.partition.topic,
                        "partition": one.partition.partition,
                        "size_bytes": one.size_bytes,
                        "offset_lag": one.offset_lag,
                        "is_future": one.is_future,
                    }
                    for one in _chosen(each, topics)
                ],
            }
            for broker_id, rows in sorted(described.items())
            for each in rows
        ]
    )


def _print_tables(described: Described, topics: set[str] | None, with_replicas: bool) -> None:
    from moldau.cli.output import Column, note, print_table
    from moldau.console.rules.wording import size_text
    from moldau.errors import KafkaError

    columns = (
        Column("broker", True),
        Column("directory"),
        Column("replicas", True),
        Column("future", True),
        Column("size", True),
        Column("usable", True),
        Column("total", True),
    )
    rows: list[Sequence[str]] = []
    replicas: list[tuple[str, ...]] = []
    for broker_id, directories in sorted(described.items()):
        for each in directories:
            if isinstance(each, KafkaError):
                rows.append((str(broker_id), f"offline: {each}", "", "", "", "", ""))
                continue
            found = _chosen(each, topics)
            futures = sum(one.is_future for one in found)
            size_bytes = sum(one.size_bytes for one in found)
            rows.append(
                (
                    str(broker_id),
                    each.path,
                    str(len(found) - futures),
                    str(futures),
                    size_text(size_bytes),
                    size_text(each.usable_bytes),
                    size_text(each.total_bytes),
                )
            )
            replicas += [_replica_row(broker_id, each.path, one) for one in found]
    print_table(columns, rows)
    if not with_replicas:
        return
    if not replicas:
        note("there are no replicas")
        return
    typer.echo()
    print_table(
        (
            Column("topic"),
            Column("partition", True),
            Column("broker", True),
            Column("directory"),
            Column("bytes", True),
            Column("future"),
            Column("lag", True),
        ),
        sorted(replicas),
    )


def _replica_row(broker_id: int, path: str, one: ReplicaOnDisk) -> tuple[str, ...]:
    return (
        one.partition.topic,
        str(one.partition.partition),
        str(broker_id),
        path,
        f"{one.size_bytes:,}",
        "yes" if one.is_future else "",
        str(one.offset_lag) if one.is_future else "",
    )
