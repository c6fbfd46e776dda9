"""Why a log is deleted, and who may lead by a state that is older than it."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant, Seeds

_FATE = "moldau.replication.rules.replica_fate"
_DEPARTURE = "moldau.cluster.rules.departure"
_RULES = "unit/replication/rules/test_replica_fate.py"
_VANISHED = "unit/broker/test_vanished_topics.py"

MUTANTS = (
    Mutant(
        name="delete-what-vanished",
        rule="DEL-1",
        breaks="a log is deleted since its topic is missing, or there is another of its name",
        edits=(
            Edit(
                _FATE,
                "return Fate.DELETE if image.was_deleted(replica.topic, topic_id) else Fate.KEEP",
                "return Fate.DELETE",
            ),
        ),
        tests=(
            f"{_RULES}::test_a_topic_that_vanished_was_not_deleted",
            "unit/replication/test_partitions.py::"
            "test_a_topic_that_vanishes_takes_no_log_along_and_finds_it_when_it_is_back",
        ),
    ),
    Mutant(
        name="delete-by-any-mark",
        rule="DEL-1",
        breaks="a mark that asks for the deletion of another topic of the name counts",
        edits=(
            Edit(
                "moldau.cluster.rules.metadata_image",
                "if name in self.deleting and topic_id in (None, self.deleting[name]):",
                "if name in self.deleting:",
            ),
        ),
        tests=(f"{_RULES}::test_a_mark_with_the_id_deletes_and_one_with_another_id_does_not",),
    ),
    Mutant(
        name="a-missing-topic-gets-no-marker",
        rule="DEL-1",
        breaks="a transaction is complete although a topic that comes back has no marker of it",
        edits=(
            Edit(
                "moldau.broker.marker_sender",
                "return not is_unreadable and image.was_deleted(one.topic, topic_id, since_ms)",
                "return True",
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
        name="a-former-topic-of-the-name-takes-a-marker-along",
        rule="DEL-1",
        breaks="a topic that comes back has no marker, since another of its name was deleted once",
        edits=(
            Edit(
                "moldau.broker.marker_sender",
                "since_ms = part.order.markers.started_ms - CLOCKS_APART_MS",
                "since_ms = 0",
            ),
        ),
        tests=(
            "unit/broker/test_marker_sender.py::"
            "test_the_deletion_of_a_former_topic_of_the_name_does_not_count",
        ),
    ),
    Mutant(
        name="a-marker-is-dropped-at-the-first-image-without-its-topic",
        rule="TXN-3",
        breaks="a transaction is complete although a new topic of the name has no marker of it",
        edits=(
            Edit(
                "moldau.broker.marker_sender",
                "        if now - since < GONE_SECONDS or not deleted:\n",
                "        if not deleted:\n",
            ),
        ),
        tests=("unit/broker/test_marker_sender.py::test_a_deleted_topic_gets_no_marker",),
    ),
    Mutant(
        name="delete-by-an-older-assignment",
        rule="DEL-1",
        breaks="a state from before a replica came here takes its log away",
        edits=(
            Edit(
                _FATE,
                "return Fate.KEEP if state.leader_epoch <= seen_epoch else Fate.DELETE",
                "return Fate.DELETE",
            ),
        ),
        tests=(
            f"{_RULES}::test_what_was_elsewhere_before_it_came_here_is_kept",
            f"{_RULES}::test_what_somebody_took_away_by_hand_is_kept",
        ),
    ),
    Mutant(
        name="lead-by-an-older-state",
        rule="DEL-2",
        breaks="a store that was set back says who leads, and the others truncate",
        edits=(
            Edit(
                _DEPARTURE, "        if seen_epoch > state.leader_epoch:\n", "        if False:\n"
            ),
            Edit(
                _DEPARTURE,
                "former.version != NO_NODE and seen_epoch > former.leader_epoch",
                "former.version != NO_NODE and seen_epoch > 1 << 60",
            ),
        ),
        tests=(f"{_VANISHED}::test_nobody_leads_by_a_state_that_is_older_than_the_logs",),
    ),
)
