"""Which consumer group each query of a pipeline commits its progress to. A rule.

Queries go at different speeds. In one group the quick ones would hide how far the slow ones are
behind, and whoever looks would see positions go to and fro; so each query has a group of its own.
"""

from __future__ import annotations

from dataclasses import replace

from moldau.spark.pipeline.model import Pipeline


def with_groups_of(pipeline: Pipeline, query: str) -> Pipeline:
    """The pipeline as one query runs it. The first sink has the group that a source names."""
    if query == pipeline.sinks[0].name:
        return pipeline
    return replace(
        pipeline,
        sources=tuple(
            one if one.group is None else replace(one, group=f"{one.group}-{query}")
            for one in pipeline.sources
        ),
    )
