"""Names of certificates, as Java writes them and as rules map them."""

from __future__ import annotations

import pytest

from moldau.security.rules.certificates import distinguished_name, map_name, parse_mapping_rules

SUBJECT = (
    (("countryName", "DE"),),
    (("organizationName", "Example, Inc."),),
    (("organizationalUnitName", "data"),),
    (("commonName", "alice"),),
)


def test_the_most_specific_part_comes_first():
    assert distinguished_name(SUBJECT) == "CN=alice,OU=data,O=Example\\, Inc.,C=DE"


def test_several_attributes_in_one_part_and_attributes_without_a_name():
    subject = (
        (("commonName", "#a "), ("userId", "7")),
        (("emailAddress", "a@b"),),
    )
    assert distinguished_name(subject) == "1.2.840.113549.1.9.1=#1603614062,CN=\\#a\\ +UID=7"


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", "CN=alice,OU=x", "CN=alice,OU=x"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "CN=kafka,OU=ServiceUsers", "kafka"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", "CN=a,OU=b", "CN=a,OU=b"),
        ("RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L", "CN=Alice,OU=Data", "alice@data"),
        ("RULE:^cn=(.*?),.*$/$1/U , DEFAULT", "cn=alice,ou=x", "ALICE"),
        ("RULE:^CN=(.*?),OU=nobody$/$1/", "CN=alice,OU=x", None),
        ("RULE:^CN=alice$/admin/", "CN=alice", "admin"),
        ("RULE:^CN=(.*?)$/a\\/$1/", "CN=alice", "a\\/alice"),
    ],
)
def test_rules(rules, name, mapped):
    assert map_name(name, parse_mapping_rules(rules)) == mapped


@pytest.mark.parametrize("text", ["RULE:^CN=(.*$/$1/", "RULE:a/b", "SOMETHING", "RULE:^a$/$1/"])
def test_rules_that_cannot_be_read(text):
    with pytest.raises(ValueError, match=r"^(is|has|names) "):
        parse_mapping_rules(text)


def test_a_long_value_has_a_length_of_several_bytes() -> None:
    """As Java encodes it (X.690, 8.1.3)."""
    name = distinguished_name(((("emailAddress", "a" * 300),),))
    assert name == f"1.2.840.113549.1.9.1=#1682012c{'61' * 300}"


@pytest.mark.parametrize(
    ("size", "length"), [(0, "00"), (127, "7f"), (128, "8180"), (255, "81ff"), (256, "820100")]
)
def test_a_length_has_as_many_bytes_as_it_needs(size: int, length: str) -> None:
    name = distinguished_name(((("title", "a" * size),),))
    assert name == f"2.5.4.12=#0c{length}{'61' * size}"


def test_what_has_a_meaning_in_a_name_is_escaped() -> None:
    for value, escaped in (
        (" ", "\\ "),
        (" a", "\\ a"),
        ("a  ", "a \\ "),
        ("a ", "a\\ "),
        ("a#", "a#"),
        ('a+"', 'a\\+\\"'),
    ):
        assert distinguished_name(((("commonName", value),),)) == f"CN={escaped}"
    assert distinguished_name(((("other", "a"),),)) == "other=a"


def test_a_rule_may_name_the_whole_match_and_groups_that_did_not_match() -> None:
    assert map_name("ab", parse_mapping_rules("RULE:a(b)(c)?/$0-$1-$2/")) == "ab-b-"
    with pytest.raises(ValueError, match=r"names \$3"):
        parse_mapping_rules("RULE:a(b)(c)?/$1$3/")
