"""Settings as they are shown, and what an edit means."""

from __future__ import annotations

from moldau.client.admin.values import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
)
from moldau.console.topics import HIDDEN, choose_configs, config_rows, plan_edit, plan_removal

SET = ConfigEntry(
    name="retention.ms",
    value="1000",
    source=ConfigSource.DYNAMIC_TOPIC,
    synonyms=(
        ConfigSynonym(name="retention.ms", value="1000", source=ConfigSource.DYNAMIC_TOPIC),
        ConfigSynonym(name="log.retention.ms", value="2000", source=ConfigSource.STATIC_BROKER),
        ConfigSynonym(name="log.retention.ms", value="3000", source=ConfigSource.DEFAULT),
    ),
)
DEFAULT = ConfigEntry(name="cleanup.policy", value="delete", source=ConfigSource.DEFAULT)
SECRET = ConfigEntry(
    name="ssl.key.password", value=None, source=ConfigSource.STATIC_BROKER, is_sensitive=True
)


def test_what_was_set_comes_first_with_what_applies_otherwise() -> None:
    rows = config_rows((DEFAULT, SECRET, SET), ResourceType.TOPIC)
    assert [row.name for row in rows] == ["retention.ms", "cleanup.policy", "ssl.key.password"]
    assert (rows[0].source, rows[0].fallback, rows[0].is_editable) == (
        "dynamic topic",
        "2000",
        True,
    )
    assert (rows[2].value, rows[2].is_editable) == (HIDDEN, False)


def test_settings_are_found() -> None:
    rows = config_rows((DEFAULT, SET), ResourceType.TOPIC)
    assert [row.name for row in choose_configs(rows, "clean", only_set=False)] == ["cleanup.policy"]
    assert [row.name for row in choose_configs(rows, "", only_set=True)] == ["retention.ms"]


def test_an_edit_says_before_and_after() -> None:
    row = config_rows((SET,), ResourceType.TOPIC)[0]
    edit = plan_edit(row, " 5000 ")
    assert edit is not None
    assert edit.change == ConfigChange(name="retention.ms", value="5000")
    assert edit.message == "retention.ms: 1000 → 5000"
    assert plan_edit(row, "1000") is None


def test_a_removal_says_what_applies_then() -> None:
    row = config_rows((SET,), ResourceType.TOPIC)[0]
    edit = plan_removal(row)
    assert edit is not None
    assert edit.change.operation is ConfigOperation.DELETE
    assert "2000" in edit.message
    assert plan_removal(config_rows((DEFAULT,), ResourceType.TOPIC)[0]) is None


def test_what_a_broker_was_told_is_not_set_for_its_topics() -> None:
    entry = ConfigEntry(
        name="min.insync.replicas", value="2", source=ConfigSource.DYNAMIC_DEFAULT_BROKER
    )
    (row,) = config_rows((entry,), ResourceType.TOPIC)
    assert not row.is_set
    assert plan_removal(row) is None
    own = ConfigEntry(name="log.retention.ms", value="2", source=ConfigSource.DYNAMIC_BROKER)
    assert config_rows((own,), ResourceType.BROKER)[0].is_set
    assert not config_rows((own,), ResourceType.TOPIC)[0].is_set
