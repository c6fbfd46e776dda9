"""From the tables of a pipeline file to a pipeline, or to everything that is wrong with it. A rule.

[sources.NAME]     topics, and how their values are read
[transforms.NAME]  SQL or a Python function, each over what is above it
[sinks.NAME]       a topic, a folder of Parquet files, or a Delta table
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from moldau.spark.pipeline.model import Pipeline, Sink, Source, Transform
from moldau.spark.pipeline.rules.section import Faults, Section
from moldau.spark.pipeline.rules.sink_declaration import read_sink
from moldau.spark.pipeline.rules.source_declaration import OptionFault, read_source
from moldau.spark.pipeline.rules.transform_declaration import read_transform

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_pipeline(
    document: Mapping[str, object], *, default_name: str, folder: str, option_fault: OptionFault
) -> Pipeline | tuple[str, ...]:
    """The pipeline that a document declares, or sentences that say what is wrong with it."""
    faults = Faults()
    root = Section(document, "", faults)
    name = root.find_text("name") or default_name
    if not _NAME.fullmatch(name):
        root.fault("name", f"{name!r} is no name; use letters, digits, dots, dashes, underscores")
    sources = _read_sources(root, name, option_fault)
    transforms = _read_transforms(root, [one.name for one in sources])
    pipeline = Pipeline(
        name=name,
        bootstrap=root.find_text("bootstrap"),
        checkpoint=root.find_text("checkpoint") or f"checkpoints/{name}",
        mode=root.choice("mode", "continuous", ("continuous", "once")),
        folder=folder,
        sources=sources,
        transforms=transforms,
        sinks=_read_sinks(root, sources, transforms),
        spark=root.pairs("spark"),
    )
    root.finish()
    _check_names(root, pipeline)
    return tuple(faults.sentences) or pipeline


def _read_sources(
    root: Section, pipeline_name: str, option_fault: OptionFault
) -> tuple[Source, ...]:
    sections = root.sections("sources")
    if not sections and not root.has("sources"):
        root.fault("sources", "there is none; add a table such as [sources.clicks]")
    return tuple(
        read_source(name, section, pipeline_name, option_fault) for name, section in sections
    )


def _read_transforms(root: Section, sources: list[str]) -> tuple[Transform, ...]:
    """Each sees what was declared before it; without a word it takes the last of them."""
    known = list(sources)
    found: list[Transform] = []
    for name, section in root.sections("transforms"):
        transform = read_transform(name, section, known)
        if transform is not None:
            found.append(transform)
        known.append(name)
    return tuple(found)


def _read_sinks(
    root: Section, sources: tuple[Source, ...], transforms: tuple[Transform, ...]
) -> tuple[Sink, ...]:
    sections = root.sections("sinks")
    if not sections and not root.has("sinks"):
        root.fault("sinks", "there is none; add a table such as [sinks.lake]")
    known = [one.name for one in (*sources, *transforms)]
    read = [read_sink(name, section, known, sources) for name, section in sections]
    return tuple(one for one in read if one is not None)


def _check_names(root: Section, pipeline: Pipeline) -> None:
    seen: set[str] = set()
    for kind, names in (
        ("sources", [one.name for one in pipeline.sources]),
        ("transforms", [one.name for one in pipeline.transforms]),
    ):
        for name in names:
            if not _VIEW.fullmatch(name):
                root.fault(
                    f"{kind}.{name}",
                    "SQL could not name it; use letters, digits and underscores",
                )
            if name.lower() in seen:
                root.fault(f"{kind}.{name}", "there is another of this name; rename one of them")
            seen.add(name.lower())
    for sink in pipeline.sinks:
        if not _NAME.fullmatch(sink.name):
            root.fault(f"sinks.{sink.name}", "use letters, digits, dots, dashes and underscores")
