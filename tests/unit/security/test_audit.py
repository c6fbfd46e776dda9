"""The audit log: what its lines say, how many denials it takes, and its file."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from moldau.security.audit import (
    AUDIT_LOGGER,
    DENIALS_AT_ONCE,
    DENIALS_PER_SECOND,
    AuditLog,
    write_audit_file,
)
from moldau.simulation.manual_clock import ManualClock


class _Clock(ManualClock):
    """Stands still until it is set forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def deny(audit: AuditLog, name: str = "clicks") -> None:
    audit.denied("User:mallory", "10.0.0.1", "Read", f"Topic:{name}", "Fetch")


def test_a_denial_says_who_may_not_do_what(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(_Clock())
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        deny(audit)
        audit.changed("User:root", "10.0.0.2", "DeleteTopics", "Topic:clicks")
        audit.changed("User:root", "10.0.0.2", "DeleteTopics", "Topic:x", "UNKNOWN_TOPIC")
    assert caplog.messages == [
        "denied: User:mallory from 10.0.0.1 may not Read Topic:clicks (Fetch)",
        "changed: User:root from 10.0.0.2, DeleteTopics Topic:clicks",
        "failed: User:root from 10.0.0.2, DeleteTopics Topic:x: UNKNOWN_TOPIC",
    ]


def test_denials_are_bounded_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = _Clock()
    audit = AuditLog(clock)
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        for _ in range(DENIALS_AT_ONCE + 40):
            deny(audit)
        assert len(caplog.messages) == DENIALS_AT_ONCE
        clock.ahead += 1.5 / DENIALS_PER_SECOND
        deny(audit)
    assert caplog.messages[-1].endswith("(40 more refusals before it were not logged)")


def test_strangers_cannot_hide_what_somebody_is_denied(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(_Clock())
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        for _ in range(10 * DENIALS_AT_ONCE):
            audit.handshake_failed("10.0.0.9", "SSL", "no certificate")
            audit.login_refused(None, "10.0.0.9", "PLAIN", "wrong")
        assert len(caplog.messages) == DENIALS_AT_ONCE
        deny(audit)
        audit.changed("User:x", "10.0.0.2", "DeleteTopics", "Topic:x", "UNKNOWN_TOPIC")
    assert [one.split(":")[0] for one in caplog.messages[-2:]] == ["denied", "failed"]


def test_the_file_has_one_object_in_each_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    close = write_audit_file(str(path))
    try:
        audit = AuditLog(_Clock())
        deny(audit, "a\nb")
        audit.changed("User:root", "h", "CreateAcls", "…", None)
    finally:
        close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["event"], first["principal"], first["resource"]) == (
        "denied",
        "User:mallory",
        "Topic:a\nb",
    )
    assert second["event"] == "changed"
    assert path.stat().st_mode & 0o077 == 0
    deny(audit)
    assert len(path.read_text().splitlines()) == 2


def test_a_long_name_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        deny(AuditLog(_Clock()), "x" * 100_000)
    assert len(caplog.messages[0]) < 500


def test_a_name_does_not_look_like_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, AUDIT_LOGGER):
        deny(AuditLog(_Clock()), "x\nchanged: User:root from h\x1b[2J, é")
    (line,) = caplog.messages
    assert line.isprintable()
    assert "x\\nchanged: User:root from h\\x1b[2J, é" in line
