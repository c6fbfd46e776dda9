"""Clients of queues: no record is lost, and none is given whose lock is over."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_ACQUIRED = "moldau.client.rules.acquired_records"
_LANE = "moldau.client.rules.share_lane"
_MACHINE = "moldau.client.rules.queue_machine"
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
        edits=(Edit(_MACHINE, "if record.deadline <= now:", "if record.deadline <= 0:"),),
        tests=(f"{_STORIES}::test_a_record_whose_lock_is_over_is_not_given",),
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
