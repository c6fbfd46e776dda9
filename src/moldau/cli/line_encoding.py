"""Lines of input whose keys or values are JSON, to be written by a schema of a registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from moldau.cli.line_parser import LineParser, ParsedLines, Payload, first_words
from moldau.errors import ConfigurationError, SchemaEncodingError

Encode: TypeAlias = Callable[[object], bytes | None]
"""From a document to the bytes of a key or value."""


class EncodedLineParser:
    """What a parser of lines of text gives, with keys or values encoded."""

    def __init__(self, lines: LineParser, key: Encode | None, value: Encode | None) -> None:
        self._lines = lines
        self._key = key
        self._value = value

    def parse(self, lines: Sequence[bytes], first_number: int) -> Iterator[ParsedLines]:
        number = first_number
        for parsed in self._lines.parse(lines, first_number):
            values: list[Payload] = []
            keys: list[Payload] | None = None if parsed.keys is None else []
            refusal: ConfigurationError | None = None
            for index, value in enumerate(parsed.values):
                try:
                    encoded = _encode(self._value, value, "value")  # type: ignore[arg-type]
                    if keys is not None and parsed.keys is not None:
                        keys.append(_encode(self._key, parsed.keys[index], "key"))
                except ValueError as error:
                    line = first_words(lines[number + index - first_number])
                    refusal = ConfigurationError(f"line {number + index} {error}: {line}")
                    break
                values.append(encoded)
            if values:
                yield ParsedLines(values, keys, parsed.partition)
            if refusal is not None:
                raise refusal
            number += len(parsed.values)


def _encode(encode: Encode | None, text: Payload, field: str) -> Payload:
    if encode is None or text is None:
        return text
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"has a {field} that is no JSON") from None
    return encode_document(encode, document, field)


def encode_document(encode: Encode, document: object, field: str) -> bytes | None:
    """Raises ValueError that says where the document does not fit."""
    try:
        return encode(document)
    except SchemaEncodingError as error:
        raise ValueError(f"has a {field} that does not fit its schema: {error}") from None
