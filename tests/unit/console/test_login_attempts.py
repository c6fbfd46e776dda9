"""How guessing is slowed down."""

from __future__ import annotations

from moldau.console.sessions import LoginAttempts, limits_of


def test_a_few_attempts_are_free_and_then_each_takes_twice_as_long() -> None:
    attempts, limits = LoginAttempts(), limits_of("10.0.0.1", "alice")
    assert [attempts.begin_attempt(limits, 0.0) for _ in range(5)] == [0.0] * 5
    assert attempts.begin_attempt(limits, 0.0) == 1.0
    assert attempts.begin_attempt(limits, 1.0) == 0.0
    assert attempts.begin_attempt(limits, 1.0) == 2.0
    assert attempts.begin_attempt(limits, 3.0) == 0.0
    assert attempts.begin_attempt(limits, 3.0) == 4.0


def test_attempts_count_when_they_begin_not_when_they_fail() -> None:
    attempts, limits = LoginAttempts(), limits_of("10.0.0.1", "alice")
    at_once = [attempts.begin_attempt(limits, 0.0) for _ in range(1000)]
    assert at_once.count(0.0) == 5


def test_an_address_that_tries_many_names_has_to_wait() -> None:
    attempts = LoginAttempts()
    let_in = [
        attempts.begin_attempt(limits_of("10.0.0.1", f"user-{n}"), 0.0) == 0 for n in range(50)
    ]
    assert sum(let_in) == 20
    assert attempts.begin_attempt(limits_of("10.0.0.2", "alice"), 0.0) == 0.0


def test_a_name_that_is_tried_from_everywhere_is_slowed_down_later() -> None:
    attempts = LoginAttempts()
    let_in = [
        attempts.begin_attempt(limits_of(f"10.0.0.{n}", "root"), 0.0) == 0 for n in range(200)
    ]
    assert sum(let_in) == 100


def test_who_knows_the_password_begins_anew() -> None:
    attempts, limits = LoginAttempts(), limits_of("10.0.0.1", "alice")
    for _ in range(5):
        attempts.begin_attempt(limits, 0.0)
    attempts.succeeded(limits)
    assert attempts.begin_attempt(limits, 0.0) == 0.0


def test_nobody_waits_longer_than_five_minutes() -> None:
    attempts, limits, now = LoginAttempts(), limits_of("10.0.0.1", "alice"), 0.0
    waits = []
    for _ in range(30):
        wait = attempts.begin_attempt(limits, now)
        waits.append(wait)
        now += wait
    assert max(waits) == 300.0


def test_what_is_remembered_is_bounded() -> None:
    attempts = LoginAttempts()
    for number in range(50_000):
        attempts.begin_attempt(limits_of(f"address {number}", f"user {number}"), float(number))
    assert len(attempts._tried) <= 10_000


def test_many_who_come_through_one_proxy_do_not_lock_each_other_out() -> None:
    attempts = LoginAttempts()
    for number in range(100):
        limits = limits_of("10.0.0.1", f"user-{number}")
        assert attempts.begin_attempt(limits, 0.0) == 0.0
        attempts.succeeded(limits)


def test_who_has_a_password_of_their_own_guesses_no_faster() -> None:
    attempts, own = LoginAttempts(), limits_of("10.0.0.1", "mallory")
    let_in = 0
    for number in range(50):
        let_in += attempts.begin_attempt(limits_of("10.0.0.1", f"user-{number}"), 0.0) == 0
        if attempts.begin_attempt(own, 0.0) == 0:
            attempts.succeeded(own)
    assert let_in == 20
