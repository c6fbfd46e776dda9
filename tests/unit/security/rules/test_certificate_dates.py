"""When certificates end, read without a library for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.security.certificates import issue, make_authority
from moldau.security.rules.certificates import (
    DAY_MS,
    WARNED_DAYS,
    end_ms,
    first_end_ms,
    is_to_be_told,
    pem_certificates,
    remaining,
)

AUTHORITY = make_authority("authority")
START = datetime(2026, 1, 1, tzinfo=UTC)
ONE = issue(AUTHORITY, "one", ("localhost",), days=10, now=START).certificate.encode()
(DER,) = pem_certificates(ONE)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@pytest.mark.parametrize("year", [2020, 2049, 2050, 2051, 2500])  # the form changes with 2050
def test_the_end_is_the_certificates(year: int) -> None:
    now = datetime(year, 3, 1, 12, 30, tzinfo=UTC)
    made = issue(AUTHORITY, "one", days=10, now=now)
    # They begin five minutes early, for clocks that are late.
    wanted = ms(now + timedelta(days=10) - timedelta(minutes=5))
    assert first_end_ms(made.certificate.encode() + made.key.encode()) == wanted


def test_of_a_chain_the_first_end_counts() -> None:
    longer = issue(AUTHORITY, "two", days=900, now=START).certificate.encode()
    assert first_end_ms(longer + ONE) == first_end_ms(ONE + longer) == first_end_ms(ONE)


def test_without_a_certificate_there_is_no_end() -> None:
    assert first_end_ms(AUTHORITY.key.encode()) is None


@given(st.binary(max_size=300) | st.integers(0, len(DER) - 1).map(lambda size: DER[:size]))
@settings(deadline=None)
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        end_ms(data)


def test_what_is_no_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="no certificate"):
        first_end_ms(b"-----BEGIN CERTIFICATE-----\nMIIx\n-----END CERTIFICATE-----")


def test_it_is_told_from_a_month_before_and_once_a_day() -> None:
    now = ms(START)
    assert not is_to_be_told(now + (WARNED_DAYS + 1) * DAY_MS, now, None)
    assert is_to_be_told(now + WARNED_DAYS * DAY_MS, now, None)
    assert not is_to_be_told(now + DAY_MS, now, now - DAY_MS + 1)
    assert is_to_be_told(now - DAY_MS, now, now - DAY_MS)


@pytest.mark.parametrize(
    ("left_ms", "text"),
    [
        (2 * DAY_MS + 1, "ends in 2 days"),
        (DAY_MS, "ends in 1 day"),
        (1, "ends in less than a day"),
        (0, "has ended: clients that check it do not connect any more"),
    ],
)
def test_how_long_it_is_good(left_ms: int, text: str) -> None:
    assert remaining(left_ms, 0) == text


def test_what_is_left_is_counted_from_now() -> None:
    assert remaining(ms(START) + 5 * DAY_MS, ms(START)) == "ends in 5 days"
    assert remaining(ms(START), ms(START) + 1).startswith("has ended")


def test_a_month_before_is_told_to_the_millisecond() -> None:
    now = ms(START)
    assert not is_to_be_told(now + WARNED_DAYS * DAY_MS + 1, now, None)
    assert is_to_be_told(now, now, None)


def der(kind: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return bytes((kind, len(content))) + content


def certificate(end: bytes, *, signed_kind: int = 0x30) -> bytes:
    validity = der(0x30, der(0x17, b"260101000000Z"), end)
    return der(0x30, der(signed_kind, der(0x02), der(0x30), der(0x30), validity))


def test_a_certificate_has_one_form_and_its_end_is_a_time() -> None:
    good = der(0x17, b"270101000000Z")
    assert end_ms(certificate(good)) == ms(datetime(2027, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="another form"):
        end_ms(certificate(good, signed_kind=0x31))
    with pytest.raises(ValueError, match="no time"):
        end_ms(certificate(der(0x13, b"270101000000Z")))
    with pytest.raises(ValueError, match="cut off"):
        end_ms(certificate(good)[:-1])


def test_two_digits_of_a_year_are_of_this_century_until_49() -> None:
    for text, year in ((b"49", 2049), (b"50", 1950)):
        end = certificate(der(0x17, text + b"0101000000Z"))
        assert end_ms(end) == ms(datetime(year, 1, 1, tzinfo=UTC))
