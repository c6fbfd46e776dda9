"""The JSON in which moves of partitions are planned, as Kafka's own tool writes and reads it.

{"version":1,"partitions":[{"topic":"clicks","partition":0,"replicas":[1,2,3]}]}

A row may have `log_dirs`, one for each replica: the directory that it is to be in on its broker, or
"any".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from moldau.model import TopicPartition

Plan = Mapping[TopicPartition, tuple[int, ...]]

PlannedDirs = Mapping[tuple[int, TopicPartition], str]
"""The log directory that a replica is to be in, by its broker and partition."""

_ANY = "any"

PlanFile = Annotated[
    Path,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="The plan: JSON as `moldau reassign plan` and Kafka's tool write it.",
        exists=True,
        dir_okay=False,
    ),
]

_WANTED = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'


def to_document(plan: Plan) -> dict[str, object]:
    return {
        "version": 1,
        "partitions": [
            {"topic": key.topic, "partition": key.partition, "replicas": list(replicas)}
            for key, replicas in sorted(plan.items())
        ],
    }


def read_plan(path: Path) -> Plan:
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for row in _read_rows(path):
        key, replicas = _read_row(path, row)
        if key in plan:
            raise typer.BadParameter(f"{path} names {key} twice", param_hint="--plan")
        plan[key] = replicas
    return plan


def read_log_dirs(path: Path) -> PlannedDirs:
    """Where a plan wants replicas on their brokers, as far as it says so."""
    found: dict[tuple[int, TopicPartition], str] = {}
    for row in _read_rows(path):
        key, replicas = _read_row(path, row)
        directories = row.get("log_dirs") if isinstance(row, dict) else None
        if directories is None:
            continue
        if not isinstance(directories, list) or len(directories) != len(replicas):
            raise typer.BadParameter(
                f"{path}: {key} needs as many log_dirs as replicas", param_hint="--plan"
            )
        for broker_id, directory in zip(replicas, directories, strict=True):
            if not isinstance(directory, str):
                raise _malformed(path)
            if directory != _ANY:
                found[broker_id, key] = directory
    return found


def _read_rows(path: Path) -> list[object]:
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise typer.BadParameter(f"{path} is not JSON: {error}", param_hint="--plan") from error
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows:
        raise _malformed(path)
    return rows


def _read_row(path: Path, row: object) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise _malformed(path)
    topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or type(partition) is not int:
        raise _malformed(path)
    if not isinstance(replicas, list) or not all(type(one) is int for one in replicas):
        raise _malformed(path)
    return TopicPartition(topic, partition), tuple(replicas)


def _malformed(path: Path) -> typer.BadParameter:
    return typer.BadParameter(f"{path} is no plan; one looks like {_WANTED}", param_hint="--plan")
