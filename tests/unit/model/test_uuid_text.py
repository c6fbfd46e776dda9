from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.uuid_text import format_uuid, parse_uuid


@given(st.uuids())
def test_an_id_survives_being_written(identifier: UUID) -> None:
    text = format_uuid(identifier)
    assert len(text) == 22
    assert parse_uuid(text) == identifier


def test_ids_look_as_kafka_writes_them() -> None:
    # From a broker's /cluster/id.
    assert format_uuid(parse_uuid("HApw8pLOT3-qhrqtyo5oFQ")) == "HApw8pLOT3-qhrqtyo5oFQ"
    assert format_uuid(UUID(int=0)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert format_uuid(UUID(int=2**128 - 1)) == "_____________________w"


@pytest.mark.parametrize(
    "text", ["", "short", "x" * 23, "!" * 22, "AAAAAAAAAAAAAAAAAAAAAB", "AAAA AAAAAAAAAAAAAAAAA"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a base64 id"):
        parse_uuid(text)
