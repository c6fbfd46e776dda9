"""Why a log is deleted, and who may lead by a state that is older than it."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

MUTANTS = (
    Mutant(
        name="a-missing-topic-gets-no-marker",
        rule="DEL-1",
        breaks="a transaction is complete although a topic that comes back has no marker of it",
        edits=(
            Edit(
                "moldau.broker.marker_sender",
                "_is_deleted",
                "not is_unreadable and image.was_deleted(one.topic, topic_id, since_ms)",
                "True",
            ),
        ),
        tests=(
            "unit/broker/test_marker_sender.py::"
            "test_a_marker_waits_for_a_topic_that_is_missing_however_long",
        ),
        seeds=Seeds(
            count=8,
            story="a_topic_vanishes_under_open_transactions",
            transactions=True,
            by=("TXN-4",),
        ),
    ),
    Mutant(
        name="a-marker-is-dropped-at-the-first-image-without-its-topic",
        rule="TXN-3",
        breaks="a transaction is complete although a new topic of the name has no marker of it",
        edits=(
            Edit(
                "moldau.broker.marker_sender",
                "MarkerSender._miss",
                "now - since < GONE_SECONDS or not deleted",
                "not deleted",
            ),
        ),
        tests=("unit/broker/test_marker_sender.py::test_a_deleted_topic_gets_no_marker",),
    ),
    Mutant(
        name="a-former-topic-of-the-name-takes-a-marker-along",
        rule="DEL-1",
        breaks="a topic that comes back has no marker, since another of its name was deleted once",
        edits=(
            Edit(
                "moldau.broker.marker_sender",
                "_is_deleted",
                "part.order.markers.started_ms - CLOCKS_APART_MS",
                "0",
            ),
        ),
        tests=(
            "unit/broker/test_marker_sender.py::"
            "test_the_deletion_of_a_former_topic_of_the_name_does_not_count",
        ),
    ),
)
