"""Progress as Prometheus reads it, for the node exporter's textfile collector. A rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moldau.spark.pipeline.rules.progress import QueryProgress

_COUNTERS = (
    ("batches", "moldau_pipeline_batches_total", "Batches since the run began."),
    ("input_rows", "moldau_pipeline_input_rows_total", "Records read since the run began."),
)
_SET_ASIDE = {
    "late_records": "Input records that came after their window was closed, in all runs.",
    "records_without_time": "Input records without a time, which are in no window, in all runs.",
    "untraced_rows": "Rows dropped as late that cannot be traced to records, in all runs.",
    "dead_letters": "Records written to dead-letter topics, in all runs.",
}


def render_metrics(
    pipeline: str, queries: Iterable[QueryProgress], *, updated_ms: int, is_running: bool
) -> str:
    """The whole text."""
    return "\n".join(_lines(pipeline, list(queries), updated_ms, is_running)) + "\n"


def _lines(
    pipeline: str, queries: list[QueryProgress], updated_ms: int, is_running: bool
) -> Iterator[str]:
    for attribute, name, help_text in _COUNTERS:
        yield from _head(name, help_text, "counter")
        for query in queries:
            yield f"{name}{_labels(pipeline, query.name)} {getattr(query, attribute)}"
    for attribute, help_text in _SET_ASIDE.items():
        name = f"moldau_pipeline_{attribute}_total"
        yield from _head(name, help_text, "counter")
        for query in queries:
            count = getattr(query.set_aside, attribute)
            yield f"{name}{_labels(pipeline, query.name)} {count}"
    for extra in sorted({key for query in queries for key in query.extra}):
        name = f"moldau_pipeline_{extra}_total"
        yield from _head(
            name, f"{extra.replace('_', ' ').capitalize()} since the run began.", "counter"
        )
        for query in queries:
            if extra in query.extra:
                yield f"{name}{_labels(pipeline, query.name)} {query.extra[extra]}"
    yield from _head("moldau_pipeline_running", "Whether the pipeline runs.", "gauge")
    yield f'moldau_pipeline_running{{pipeline="{_escape(pipeline)}"}} {int(is_running)}'
    name = "moldau_pipeline_updated_timestamp_seconds"
    yield from _head(name, "When these figures were written.", "gauge")
    yield f'{name}{{pipeline="{_escape(pipeline)}"}} {updated_ms / 1000:.3f}'


def _head(name: str, help_text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


def _labels(pipeline: str, query: str) -> str:
    return f'{{pipeline="{_escape(pipeline)}",query="{_escape(query)}"}}'


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
