"""`moldau log dump`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import AsJson

if TYPE_CHECKING:
    from moldau.cli.log.side_files import ReadRows


def dump(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            exists=True,
            dir_okay=False,
            help="Segments (.log) and what lies beside them: .index, .timeindex, .txnindex, "
            ".snapshot, *-checkpoint.",
            show_default=False,
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", help="Show the records in each batch, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is in the files of a log, Kafka's or Moldau's. Needs no broker.

    Fails when a file is damaged, and says where.
    """
    from moldau.cli.log.side_files import find_reader
    from moldau.cli.output import note

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
    from moldau.cli.log.segment_dump import is_fault, to_document, to_lines
    from moldau.cli.log.segment_walk import walk_segment
    from moldau.cli.output import print_line

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
    from moldau.cli.log.side_files import base_offset_of
    from moldau.cli.output import print_line

    for row in reader(path, base_offset_of(path)):
        if as_json:
            print_line(row)
        else:
            shown = "  ".join(f"{name} {_shown(value)}" for name, value in row.items())
            sys.stdout.write(shown + "\n")


def _shown(value: object) -> str:
    return "-" if value is None else str(value)
