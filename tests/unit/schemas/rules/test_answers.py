from __future__ import annotations

import pytest

from moldau.errors import (
    ConfigurationError,
    IncompatibleSchemaError,
    RegistryAuthorizationError,
    RegistryError,
    SchemaNotFoundError,
)
from moldau.schemas.model import Reference, Schema
from moldau.schemas.rules.answers import (
    find_failure,
    read_places,
    read_registered,
    schema_to_document,
)

WHERE = "http://registry"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, RegistryAuthorizationError),
        (403, RegistryAuthorizationError),
        (404, SchemaNotFoundError),
        (409, IncompatibleSchemaError),
        (422, RegistryError),
        (302, RegistryError),
    ],
)
def test_a_refusal_becomes_an_error_with_what_was_said(
    status: int, kind: type[RegistryError]
) -> None:
    error = find_failure(status, {"error_code": 42201, "message": "because"}, WHERE)

    assert type(error) is kind
    assert (error.status, error.registry_code) == (status, 42201)
    assert WHERE in str(error)
    assert find_failure(200, None, WHERE) is None


def test_what_is_sent_is_what_confluent_documents() -> None:
    reference = Reference(name="a.B", subject="b", version=2)

    assert schema_to_document(Schema(text='"int"')) == {"schema": '"int"'}
    assert schema_to_document(Schema(text="x", type="PROTOBUF", references=(reference,))) == {
        "schema": "x",
        "schemaType": "PROTOBUF",
        "references": [{"name": "a.B", "subject": "b", "version": 2}],
    }


def test_an_answer_of_something_else_is_told() -> None:
    for answer in (None, [], {"id": 1}):
        with pytest.raises(RegistryError, match="address of a schema registry"):
            read_registered(answer, WHERE)
    with pytest.raises(ConfigurationError, match="XML"):  # what is wrong is the schema
        read_registered({"schema": "x", "schemaType": "XML"}, WHERE)


def test_numbers_and_places_of_any_kind_are_read() -> None:
    for number in (-1, 1 << 31, 1 << 70, "5", True):
        assert read_registered({"schema": "x", "id": number}, WHERE).id is None
    odd = [{"subject": 5, "version": "x"}, {"version": []}, {"subject": "a", "version": 2}]
    assert read_places(odd, WHERE) == [("5", 0), ("None", 0), ("a", 2)]
