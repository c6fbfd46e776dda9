"""What the pipeline commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from moldau.spark.pipeline.model import Pipeline

PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline file, TOML or YAML.")
]

PipelineBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        envvar="MOLDAU_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Brokers to ask first; goes before what the file says.",
        show_default=f"the file's, or {DEFAULT_BOOTSTRAP}",
    ),
]

Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Where Spark runs: local[*], local-cluster[2,1,1024], spark://..., yarn, k8s://...",
    ),
]

DEFAULT_MASTER = "local[*]"


def load_with_security(file: Path) -> Pipeline:
    """What the file declares, with the security of --command-config or the profile."""
    from dataclasses import replace

    from moldau.cli.connection_options import security_options
    from moldau.spark.pipeline.file import load_pipeline

    return replace(load_pipeline(file), security=security_options())


def choose_bootstrap(given: str | None, of_file: str | None) -> str:
    return given or of_file or DEFAULT_BOOTSTRAP
