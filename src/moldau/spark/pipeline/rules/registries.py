"""The keys of a source that are about a schema registry. A rule."""

from __future__ import annotations

from typing import Final

from moldau.spark.pipeline.model import RegistrySource, ValueFormat
from moldau.spark.pipeline.rules.section import Section

_KEYS: Final = ("subject", "schema_version", "message", "registry_options")
_URL: Final = "schema.registry.url"


def read_registry(
    section: Section, value_format: ValueFormat, topics: tuple[str, ...]
) -> RegistrySource | None:
    """What is wrong goes to the section's faults."""
    url = section.find_text("registry")
    subject = section.find_text("subject")
    version = section.number("schema_version", 0, 1)
    message = section.find_text("message")
    options = section.pairs("registry_options")
    if url is None:
        if value_format == "registry":
            section.fault("registry", "is missing; give its address, like http://127.0.0.1:8081")
        for key in _KEYS:
            if section.has(key):
                section.fault(key, "is about a schema registry; set registry to its address")
        return None
    if value_format not in ("avro", "registry"):
        section.fault(
            "registry",
            'values of this format have none; set format to "avro" or "registry"',
            by="format",
        )
    if subject is None and len(topics) != 1:
        section.fault("subject", "is missing; several topics need to be told which schema counts")
    return RegistrySource(
        subject=subject or "".join(f"{one}-value" for one in topics[:1]),
        version=version or None,
        message=message,
        settings=((_URL, url), *options),
    )
