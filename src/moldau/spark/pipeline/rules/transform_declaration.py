"""Reads `[transforms.NAME]`. A rule."""

from __future__ import annotations

import re
from collections.abc import Sequence

from moldau.config.spelling import suggest
from moldau.spark.pipeline.model import PythonTransform, SqlTransform, Transform
from moldau.spark.pipeline.rules.section import Section

_FUNCTION = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def read_transform(name: str, section: Section, known: Sequence[str]) -> Transform | None:
    """The transform, or None when too much is wrong with it; it may use what is `known`."""
    sql, function = section.find_text("sql"), section.find_text("python")
    inputs = section.find_texts("from")
    section.finish()
    if bool(sql) == bool(function):
        section.fault("sql", "give exactly one of sql and python, to say what is done")
        return None
    if sql:
        if inputs:
            section.fault("from", "SQL names what it reads in its own FROM; remove it")
        return SqlTransform(name=name, sql=sql)
    for one in inputs:
        check_known(section, "from", one, known)
    return _read_function(name, section, function or "", inputs or tuple(known[-1:]))


def check_known(section: Section, key: str, name: str, known: Sequence[str]) -> None:
    """A fault where the name was not declared before."""
    if name not in known:
        declared = ", ".join(known) or "none"
        hint = suggest(name, known) or f"; declared above it: {declared}"
        section.fault(key, f"there is no source or transform {name!r}{hint}")


def _read_function(
    name: str, section: Section, text: str, inputs: tuple[str, ...]
) -> PythonTransform | None:
    found = _FUNCTION.fullmatch(text)
    if found is None:
        section.fault("python", f"{text!r} names no function; write module:function")
        return None
    return PythonTransform(name=name, module=found[1], function=found[2], inputs=inputs)
