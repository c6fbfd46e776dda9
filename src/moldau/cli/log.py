"""`moldau log`: looks into the files of logs, and where brokers have them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.log_dump import (
    ReadRows,
    base_offset_of,
    find_reader,
    is_fault,
    to_document,
    to_lines,
    walk_segment,
)
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, argument, flag, option
from moldau.cli.output import note, print_document, print_line, print_table
from moldau.cli.session import end_with, with_admin
from moldau.client.admin.values import LogDirDescription, ReplicaOnDisk
from moldau.errors import KafkaError
from moldau.ops.formatting import size_text

Described = Mapping[int, tuple[LogDirDescription | KafkaError, ...]]


def dirs(
    broker: Annotated[
        list[int] | None, option("ID", "Only of this broker; repeat for more.", default="all")
    ] = None,
    topic: Annotated[
        list[str] | None,
        option("NAME", "Only replicas of this topic; repeat for more.", default="all"),
    ] = None,
    replicas: Annotated[
        bool, flag("--replicas", "Show the replicas in each directory, too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the log directories of brokers: what is in them, how full they are, what moves there.

    A replica that moves between two directories of its broker is in both until it has arrived: in
    the new one as a future replica, with the offsets that it is behind.
    """

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

    columns = (">broker", "directory", ">replicas", ">future", ">size", ">usable", ">total")
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
        ("topic", ">partition", ">broker", "directory", ">bytes", "future", ">lag"),
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


def dump(
    files: Annotated[
        list[Path],
        argument(
            "FILE...",
            "Segments (.log) and what lies beside them: .index, .timeindex, .txnindex, "
            ".snapshot, *-checkpoint.",
            exists=True,
            dir_okay=False,
        ),
    ],
    records: Annotated[bool, flag("--records", "Show the records in each batch, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is in the files of a log, Kafka's or Moldau's. Needs no broker.

    Fails when a file is damaged, and says where.
    """
    sound = True
    for path in files:
        if not as_json and len(files) > 1:
            typer.secho(f"{path}:", bold=True)
        reader = find_reader(path)
        if not path.stat().st_size:
            note(f"{path} is empty")
        if reader is None:
            sound &= _dump_segment(path, records, as_json)
        else:
            _dump_rows(path, reader, as_json)
    if not sound:
        typer.echo("moldau: there is damage; it is marked above", err=True)
        raise typer.Exit(1)


def _dump_segment(path: Path, with_records: bool, as_json: bool) -> bool:
    """Print every batch; say whether all were sound."""
    sound = True
    with path.open("rb") as file:
        for walked in walk_segment(file, path.stat().st_size):
            sound &= not is_fault(walked)
            if as_json:
                print_line(to_document(walked, with_records))
            else:
                for line in to_lines(walked, with_records):
                    sys.stdout.write(line + "\n")
    return sound


def _dump_rows(path: Path, reader: ReadRows, as_json: bool) -> None:
    for row in reader(path, base_offset_of(path)):
        if as_json:
            print_line(row)
        else:
            shown = "  ".join(f"{name} {_shown(value)}" for name, value in row.items())
            sys.stdout.write(shown + "\n")


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
