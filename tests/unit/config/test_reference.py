from __future__ import annotations

from pathlib import Path

import pytest

from moldau.config import reference
from moldau.config.broker_options import THEMES, BrokerOptions
from moldau.config.topic_options import TopicOptions

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_committed_page_is_the_rendered_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.render(), (
        "run: python -m moldau.config.reference docs/configuration.md"
    )


def test_every_option_of_the_broker_has_a_section() -> None:
    themed = [name for _, theme in THEMES for name in theme.declarations()]
    assert sorted(themed) == sorted(BrokerOptions.declarations())


def test_an_entry_says_what_the_declaration_says() -> None:
    page = reference.render()
    assert (
        "#### `segment.bytes`\n\nwhole number · default `1073741824` (1 GiB) · at least 1048576 · "
        "changes at any time · the broker's `log.segment.bytes`\n\n"
    ) in page
    assert "default from `log.retention.minutes`, then `log.retention.hours`" in page
    assert "default `9223372036854775807` (no limit)" in page
    assert "default `86400000` (1 day)" in page
    assert "min.insync.replicas`\n\nwhole number · default `1` · at least 1 · cluster-wide" in page


def test_what_matters_most_comes_first_in_its_section() -> None:
    page = reference.render()
    network = page[page.index("### Network") :]
    assert network.index("#### `listeners`") < network.index("#### `connections.max.idle.ms`")


def test_names_in_messages_are_set_as_code() -> None:
    page = reference.render()
    assert "partitions of `__consumer_offsets`." in page
    assert "or `*` for all of the topic" in page


def test_internal_options_are_left_out() -> None:
    assert TopicOptions.internal_segment_bytes.name not in reference.render()


def test_the_page_is_written_or_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference.main([str(tmp_path / "page.md")])
    reference.main([])
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == capsys.readouterr().out
