"""`moldau elect`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.output import note, print_document
from moldau.model import TopicPartition


class ElectionChoice(Enum):
    """The kinds of election."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def elect(
    election: Annotated[
        ElectionChoice,
        typer.Argument(
            metavar="preferred|unclean",
            help="preferred: the first replica leads again. unclean: where no replica is alive "
            "that has everything, the best log of the others leads, and what it lacks is lost.",
            show_default=False,
        ),
    ],
    partitions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC-PARTITION...",
            help="Which partitions, like clicks-0.",
            show_default=False,
        ),
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="All partitions that need it.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Elect leaders of partitions: preferred ones, or unclean ones.

    \b
    For example:
    moldau elect preferred --all
    moldau elect unclean clicks-0 clicks-3
    """
    from moldau.cli.session import end_with, with_admin
    from moldau.client.admin_values import ElectionType
    from moldau.errors import ElectionNotNeededError

    if bool(partitions) is everywhere:
        raise typer.BadParameter("name partitions like clicks-0, or give --all")
    wanted = None if everywhere else [_parse(text) for text in partitions or ()]
    kind = ElectionType[election.name]
    answers = with_admin(bootstrap, lambda admin: admin.elect_leaders(wanted, election_type=kind))
    elected = sorted(key for key, error in answers.items() if error is None)
    if as_json:
        rows = [{"topic": key.topic, "partition": key.partition} for key in elected]
        print_document({"elected": rows})
    elif elected:
        typer.echo(f"elected leaders of {', '.join(map(str, elected))}")
    elif all(isinstance(error, ElectionNotNeededError) for error in answers.values()):
        note("no election was needed")
    end_with(e for e in answers.values() if not isinstance(e, ElectionNotNeededError))


def _parse(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    if not topic or not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is no partition like clicks-0")
    return TopicPartition(topic, int(number))
