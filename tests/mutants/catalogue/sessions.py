"""Fetch sessions: what is looked at, and what is said of what is not."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_SESSION = "moldau.broker.fetch"
_SESSIONS = "moldau.broker.fetch"
_NEWS = "unit/broker/test_session_news.py"
_ENDS = f"{_NEWS}::test_what_ends_a_rest"

MUTANTS = (
    Mutant(
        name="records-are-no-news-to-followers",
        rule="ISR-4",
        breaks="a follower at rest does not hear of records",
        edits=(Edit(_SESSIONS, "_count", "session.mark(partition)"),),
        tests=(f"{_ENDS}[records]",),
    ),
    Mutant(
        name="a-high-watermark-is-no-news",
        rule="ISR-4",
        breaks="who is at rest does not hear that the high watermark moved",
        edits=(Edit(_SESSIONS, "FetchSessions.on_commit", "session.mark(partition)"),),
        tests=(f"{_ENDS}[high-watermark]",),
    ),
    Mutant(
        name="a-high-watermark-is-told-beside-a-divergence",
        rule="ISR-4",
        breaks="a follower that goes back never hears of what was committed meanwhile",
        edits=(
            Edit(
                _SESSION,
                "SessionPartition.note_answer",
                "read.high_watermark if read.diverging_epoch is None else -1",
                "read.high_watermark",
            ),
        ),
        tests=(
            "unit/broker/test_fetch_sessions.py::test_after_a_divergence_everything_is_told_again",
        ),
    ),
    Mutant(
        name="an-election-is-no-news",
        rule="ISR-4",
        breaks="who is at rest does not hear of another epoch, in-sync set or log start",
        edits=(Edit(_SESSIONS, "FetchSessions.on_change", "partition.session.mark(partition)"),),
        tests=(f"{_ENDS}[election]",),
    ),
    Mutant(
        name="a-log-start-is-no-news",
        rule="ISR-4",
        breaks="who is at rest does not hear that records were deleted",
        edits=(
            Edit(
                "moldau.storage.log", "Log.advance_start", "if self.on_start_moved is not None: ..."
            ),
        ),
        tests=(f"{_ENDS}[log-start]",),
    ),
    Mutant(
        name="forget-how-long-a-follower-rested",
        rule="ISR-4",
        breaks="the first record after a quiet hour finds all followers an hour behind",
        edits=(
            Edit(
                _SESSION,
                "FetchSession.mark",
                "self._note_idle(watched_as, BrokerId(replica_id), self.asked_at)",
                "pass",
            ),
        ),
        tests=(
            f"{_ENDS}[a-long-rest]",
            f"{_NEWS}::test_a_follower_at_rest_is_caught_up_until_it_asked_last",
        ),
    ),
    Mutant(
        name="rest-until-the-request-that-ends-it",
        rule="ISR-4",
        breaks="a follower that names a partition again is taken to have been at its end till then",
        edits=(
            Edit(
                _SESSION,
                "FetchSession.begin_round",
                "if terms != self.terms: ...",
                "self.asked_at = now\nif terms != self.terms: ...",
            ),
        ),
        tests=(f"{_ENDS}[dropped]",),
    ),
    Mutant(
        name="forget-the-rest-of-what-is-dropped",
        rule="ISR-4",
        breaks="nobody knows until when a follower was caught up that drops a partition",
        edits=(
            Edit(
                _SESSION,
                "FetchSession.begin_round",
                "self.mark(partition)\ndel self.news[partition]",
                "self.news.pop(partition, None)",
            ),
        ),
        tests=(f"{_ENDS}[dropped]",),
    ),
    Mutant(
        name="serve-in-the-order-of-the-news",
        rule="fairness",
        breaks="who has records all the time is served before those that wait for their turn",
        edits=(
            Edit(
                _SESSION,
                "FetchSession.in_turn",
                "sorted(self.news, key=attrgetter('turn'))",
                "list(self.news)",
            ),
        ),
        tests=(f"{_ENDS}[turns]",),
    ),
)
