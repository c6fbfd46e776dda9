"""The store that brokers of one machine share: whose session lasts, and what its client knows."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_TIMEOUTS = "moldau.coordination.served.server"
_SERVER = "moldau.coordination.served.server"
_SESSION = "moldau.coordination.served.session"
_EMBEDDED = "moldau.coordination.embedded"
_UNIT = "unit/coordination"

MUTANTS = (
    Mutant(
        name="who-looks-late-forgives-nobody",
        rule="sessions of a served store",
        breaks="a supervisor that was paused ends the sessions of all whom it could not hear",
        edits=(
            Edit(
                _TIMEOUTS,
                "SessionTimeouts.remove_expired",
                "late > CHECK_SECONDS",
                "late > 1000000000.0",
            ),
        ),
        tests=(f"{_UNIT}/test_session_timeouts.py",),
    ),
    Mutant(
        name="a-session-ends-early",
        rule="REP-4",
        breaks="a session ends within its time-out, while its broker's lease lasts",
        edits=(
            Edit(
                _TIMEOUTS,
                "SessionTimeouts.remove_expired",
                "silence.timeout_seconds",
                "0.5 * silence.timeout_seconds",
            ),
        ),
        tests=(f"{_UNIT}/test_session_timeouts.py",),
    ),
    Mutant(
        name="a-dead-process-keeps-its-session",
        rule="sessions of a served store",
        breaks="the end of a broker's process is noticed by its silence alone",
        edits=(
            Edit(
                _SERVER, "StoreServer.end_sessions_of", "session.process_id == process_id", "False"
            ),
        ),
        tests=(
            f"{_UNIT}/test_store_server.py"
            "::test_the_end_of_a_process_ends_its_sessions_at_once_and_no_others",
        ),
    ),
    Mutant(
        name="what-was-missed-is-not-told",
        rule="watches of a served store",
        breaks="a session that comes back over another connection misses changes",
        edits=(
            Edit(
                _SERVER,
                "StoreServer._connect",
                "request.session_id and request.seen < self._store.changes_made",
                "not request.session_id",
            ),
        ),
        tests=(
            f"{_UNIT}/test_store_server.py::test_what_a_watch_missed_without_a_connection_is_told",
        ),
    ),
    Mutant(
        name="a-broker-outlives-its-supervisor",
        rule="sessions of a served store",
        breaks="a session goes on although nobody serves it any more",
        edits=(Edit(_SESSION, "StoreSession._connect", "self._end_session()", "pass"),),
        tests=(
            f"{_UNIT}/test_store_server.py::test_sessions_end_with_their_server_and_it_is_known",
        ),
    ),
    Mutant(
        name="the-store-answers-before-it-has-written",
        rule="a write that was answered is on disk",
        breaks="a killed supervisor has lost what it answered",
        edits=(
            Edit(
                _EMBEDDED,
                "EmbeddedStore._commit",
                "await self._workers.run(lambda: self._database.commit(changes, last_id))",
                "asyncio.get_running_loop().call_later(0.05, lambda: "
                "self._database.commit(changes, last_id))",
            ),
        ),
        tests=(f"{_UNIT}/test_store_crashes.py",),
    ),
    Mutant(
        name="the-store-does-not-sync-its-commits",
        rule="a write that was answered is on disk",
        breaks="the machine loses its power, and the store has lost what it answered",
        edits=(
            Edit(
                "moldau.coordination.embedded",
                "_prepare",
                "connection.execute('PRAGMA synchronous = FULL')",
                "connection.execute('PRAGMA synchronous = NORMAL')",
            ),
        ),
        tests=(f"{_UNIT}/test_embedded_store.py::test_each_commit_is_synced",),
    ),
)
