"""Addresses of the message browser."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from moldau.console.records import Browsing

NUMBERS = st.none() | st.integers(0, 2**62)
BROWSINGS = st.one_of(
    st.builds(Browsing, partition=NUMBERS, offset=st.integers(0, 2**62), opens=st.booleans()),
    st.builds(Browsing, partition=NUMBERS, time=st.text(min_size=1, max_size=9)),
    st.builds(Browsing, partition=NUMBERS, is_live=st.booleans(), search=st.text(max_size=9)),
)


@given(BROWSINGS)
def test_an_address_shows_the_same_again(wanted: Browsing) -> None:
    query = urlsplit(wanted.path("clicks")).query
    read = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
    assert Browsing.read(read) == wanted


def test_a_topic_s_name_and_a_search_are_quoted() -> None:
    path = Browsing(partition=3, offset=120, search="a&b=c").path("a/b?c")
    assert path == "/topics/a%2Fb%3Fc?partition=3&offset=120&search=a%26b%3Dc"
    assert Browsing().path("clicks") == "/topics/clicks"


def test_nonsense_in_an_address_counts_as_nothing() -> None:
    assert Browsing.read({"partition": "x", "offset": "-1", "open": "1"}) == Browsing()
    assert Browsing.read({"offset": "9" * 30}) == Browsing()
