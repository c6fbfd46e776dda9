"""Connections: answers that are owed while batches wait for the replicas."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_OWED = "moldau.broker.owed_answers"
_DISPATCH = "moldau.broker.dispatch"
_MEMORY = "moldau.testing.memory_connection"
_SOCKET = "moldau.net.connection"
_REPLICATED = "unit/broker/handlers/test_replicated_data.py"
_NETWORK = "contract/test_network.py"

MUTANTS = (
    Mutant(
        name="answers-leave-when-they-are-known",
        rule="NET-1",
        breaks="an answer that is known early leaves before those to earlier requests",
        edits=(
            Edit(
                _OWED,
                "        leaving: list[Sequence[Chunk]] = []\n",
                "        self._owed.remove(place)\n        return [chunks]\n"
                "        leaving: list[Sequence[Chunk]] = []\n",
            ),
        ),
        tests=(
            "unit/broker/test_owed_answers.py"
            "::test_answers_leave_in_order_and_as_soon_as_those_before_them",
        ),
    ),
    Mutant(
        name="a-question-overtakes-what-was-produced",
        rule="NET-1",
        breaks="a client that asks for the end does not find what it has produced before",
        edits=(
            Edit(
                _DISPATCH,
                "            if self._owed and header.api_key != PRODUCE.key:\n",
                "            if False:\n",
            ),
        ),
        tests=(
            f"{_REPLICATED}"
            "::test_any_other_request_waits_until_what_was_produced_before_it_is_answered",
        ),
    ),
    Mutant(
        name="answers-are-owed-without-end",
        rule="NET-1",
        breaks="a client can have any number of requests wait for the replicas",
        edits=(
            Edit(
                _MEMORY,
                "        if self._is_muted or self._owed >= MOST_OWED_ANSWERS:\n",
                "        if self._is_muted:\n",
            ),
            Edit(
                _SOCKET,
                "                if self._start == self._end or self._owed >= self._most_owed:\n",
                "                if self._start == self._end:\n",
            ),
        ),
        tests=(
            f"{_NETWORK}::test_no_frame_comes_while_too_many_answers_are_owed",
            f"{_REPLICATED}"
            "::test_what_a_client_sent_before_it_went_is_appended_and_nobody_waits_for_it",
        ),
    ),
)
