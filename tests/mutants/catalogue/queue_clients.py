"""Clients of queues: no record is lost, and none is given whose lock is over."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_ACQUIRED = "moldau.client.rules.acquired_records"
_LANE = "moldau.client.rules.share_lane"
_MACHINE = "moldau.client.rules.queue_machine"
_READY = "moldau.client.rules.ready_records"
_SESSION = "moldau.client.rules.share_session"
_UNIT = "unit/client/rules"
_STORIES = f"{_UNIT}/test_queue_machine.py"

MUTANTS = (
    Mutant(
        name="what-did-not-come-is-called-a-gap",
        rule="a record is never acknowledged unseen",
        breaks="an answer that was cut short makes the client say that records do not exist",
        edits=(Edit(_ACQUIRED, "    unreadable.update(range(next_offset, end_offset))\n", ""),),
        tests=(f"{_UNIT}/test_acquired_records.py",),
    ),
    Mutant(
        name="a-queue-gives-what-it-has-no-lock-for",
        rule="a record has one taker at a time",
        breaks="a record is given after its lock is over",
        edits=(Edit(_READY, "if record.deadline <= now:", "if record.deadline <= 0:"),),
        tests=(f"{_STORIES}::test_a_record_whose_lock_is_over_is_not_given",),
    ),
    Mutant(
        name="a-queue-gives-what-was-lost-with-its-session",
        rule="a record has one taker at a time",
        breaks="records are given that the broker has released with the session",
        edits=(
            Edit(
                _LANE,
                "        self.session.lose()\n        self.lose_ready(failure)\n",
                "        self.session.lose()\n",
            ),
        ),
        tests=(f"{_STORIES}::test_what_nobody_has_taken_is_lost_with_its_session",),
    ),
    Mutant(
        name="a-queue-gives-again-what-the-program-has",
        rule="a record has one taker at a time",
        breaks="after a lost session a record is given a second time while it is worked on",
        edits=(
            Edit(
                _LANE,
                "        if record is None:\n            return False\n        is_running",
                "        if record is not None:\n            return False\n        is_running",
            ),
        ),
        tests=(
            f"{_STORIES}::"
            "test_what_the_program_has_is_not_given_again_when_it_comes_in_the_next_session",
        ),
    ),
    Mutant(
        name="a-queue-gives-what-others-are-assigned-to",
        rule="a record has one taker at a time",
        breaks="a member that has lost its place gives records that it has not begun with",
        edits=(Edit(_MACHINE, "            self._give_back_others(plan)\n", ""),),
        tests=(
            f"{_STORIES}::"
            "test_what_nobody_has_taken_is_given_back_when_the_member_has_lost_its_place",
        ),
    ),
    Mutant(
        name="one-refused-lock-fails-them-all",
        rule="a word that can arrive arrives",
        breaks="a lock that has run out undoes what was done with others",
        edits=(
            Edit(
                _LANE,
                "elif failure.code is ErrorCode.invalid_record_state and len(parcel) > 1:",
                "elif failure.code is ErrorCode.invalid_record_state and not parcel:",
            ),
        ),
        tests=(f"{_STORIES}::test_one_lock_that_has_run_out_does_not_fail_the_others",),
    ),
    Mutant(
        name="what-was-under-way-is-forgotten-with-the-connection",
        rule="every word arrives or is reported",
        breaks="a lost connection loses acknowledgements without a word",
        edits=(Edit(_LANE, "        self._try_again(under_way, failure)\n", ""),),
        tests=(_STORIES,),
    ),
    Mutant(
        name="a-session-is-opened-with-acknowledgements",
        rule="requests of a share session are as brokers take them",
        breaks="the request that opens a session acknowledges, and is refused",
        edits=(
            Edit(
                _LANE,
                "told = self._pack(with_renewals=False) if step.epoch else {}",
                "told = self._pack(with_renewals=False)",
            ),
        ),
        tests=(_STORIES,),
    ),
    Mutant(
        name="a-lost-session-goes-on",
        rule="requests of a share session are as brokers take them",
        breaks="after a failure the client goes on with an epoch that the broker does not know",
        edits=(Edit(_SESSION, "        self.epoch = OPENING_EPOCH\n", ""),),
        tests=(f"{_UNIT}/test_share_session.py", _STORIES),
    ),
    Mutant(
        name="an-idle-queue-takes-again-what-it-gave-back",
        rule="what nobody works on is not delivered",
        breaks="a program that comes for nothing delivers records to itself until they are gone",
        edits=(
            Edit(
                _MACHINE,
                "limit > 1 and not self._is_idle and not self._is_dry",
                "limit >= 1 and not self._is_dry",
            ),
        ),
        tests=(_STORIES,),
        is_sample=True,
    ),
)
