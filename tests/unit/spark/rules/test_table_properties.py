from __future__ import annotations

from moldau.spark.rules.table_properties import without_table_properties


def test_options_of_a_query_are_as_they_are() -> None:
    given = {"Subscribe": "clicks", "owner": "alice"}
    assert without_table_properties(given) == {"subscribe": "clicks", "owner": "alice"}


def test_of_a_table_only_its_options_are_left() -> None:
    given = {
        "provider": "moldau",
        "owner": "alice",
        "location": "file:/warehouse/clicks",
        "option.subscribe": "clicks",
        "option.kafka.bootstrap.servers": "b:1",
        "startingOffsets": "earliest",
    }
    assert without_table_properties(given) == {
        "subscribe": "clicks",
        "kafka.bootstrap.servers": "b:1",
        "startingoffsets": "earliest",
    }
