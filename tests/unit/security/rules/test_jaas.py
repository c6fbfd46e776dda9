"""Java's login configuration as it stands in properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.rules.sasl import format_jaas, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_users_and_own_credentials():
    found = parse_jaas(f'{PLAIN} required username="b" password="p w" user_b="p w" user_al="x";')
    assert (found.username, found.password) == ("b", "p w")
    assert found.users == {"b": "p w", "al": "x"}


def test_lines_quotes_and_bare_values():
    found = parse_jaas(f'{PLAIN} required\n  username=bob\n  password="a\\"b\\\\c";\n')
    assert (found.username, found.password) == ("bob", 'a"b\\c')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "semicolon"),
        (";", "semicolon"),
        (f"{PLAIN}", "semicolon"),
        (f"{PLAIN};", "begin with"),
        (f"{PLAIN} required", "semicolon"),
        (f'{PLAIN} required ";"', "semicolon"),
        (f'{PLAIN} required username="b" password="p"', "semicolon"),
        (f"{PLAIN} perhaps username=b;", "begin with"),
        ('"" required username=b;', "begin with"),
        (f'{PLAIN} required username="b;', "quote that does not end"),
        (f"{PLAIN} required username=;", "of the form"),
        (f"{PLAIN} required username b;", "of the form"),
        (f"{PLAIN} required username;", "of the form"),
        (f"{PLAIN} required username b c;", "of the form"),
        (f'{PLAIN} required username "=" b;', "of the form"),
        (f"{PLAIN} required = = b;", "of the form"),
        (f"{PLAIN} required username = =;", "of the form"),
        (f"{PLAIN} required username=b more;", "of the form"),
    ],
)
def test_malformed_texts_are_refused_without_repeating_them(text, why):
    with pytest.raises(ValueError, match=why) as refused:
        parse_jaas(text)
    assert "username" not in str(refused.value)


def test_the_representation_has_no_password():
    assert "hidden" not in repr(parse_jaas(f'{PLAIN} required password="hidden";'))


@given(st.dictionaries(st.from_regex(r"[a-z_]+", fullmatch=True), st.text(), max_size=4))
def test_what_is_written_is_read(options):
    assert parse_jaas(format_jaas(PLAIN, options)).options == options


def test_a_module_needs_no_options_and_every_flag_will_do():
    for flag in ("required", "Requisite", "SUFFICIENT", "optional"):
        assert parse_jaas(f"{PLAIN} {flag};").options == {}
        assert parse_jaas(f" {PLAIN} {flag} ; \n").module == PLAIN
