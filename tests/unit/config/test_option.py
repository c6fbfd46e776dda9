from __future__ import annotations

import pytest

from moldau.config.option import (
    INT,
    PASSWORD,
    STRING,
    Fallback,
    Option,
    OptionSet,
    at_least,
    option,
    optional,
)


class Left(OptionSet):
    size = option("the.size", INT, 3, "How large.", at_least(1))


class Right(OptionSet):
    word = optional("the.word", STRING, "What to say.")
    secret = optional("the.secret", PASSWORD, "Hush.", sensitive=True)


class Both(Left, Right):
    pass


def test_on_the_class_an_option_is_its_declaration() -> None:
    assert isinstance(Left.size, Option)
    assert Left.size.name == "the.size"
    assert Left.size.attribute == "size"
    assert Left.size.default_text == "3"


def test_on_an_instance_an_option_is_a_plain_attribute() -> None:
    options = Left({"size": 7})
    assert options.size == 7
    assert vars(options) == {"size": 7}


def test_an_instance_without_a_value_says_which_is_missing() -> None:
    with pytest.raises(AttributeError, match="Left was made without a value for size"):
        _ = Left({}).size


def test_instances_cannot_change() -> None:
    options = Left({"size": 7})
    with pytest.raises(AttributeError, match="immutable"):
        options.size = 8
    assert options.size == 7


def test_replace_gives_a_copy_and_leaves_the_original() -> None:
    options = Left({"size": 7})
    assert options.replace(size=8).size == 8
    assert options.size == 7


def test_replace_refuses_what_is_no_option() -> None:
    with pytest.raises(AttributeError, match="no option length"):
        Left({"size": 7}).replace(length=8)


def test_a_class_has_the_options_of_its_bases_in_their_order() -> None:
    assert list(Both.declarations()) == ["the.size", "the.word", "the.secret"]
    assert Both.find_declaration("the.size") is Left.size
    assert Both.find_declaration("the.weight") is None


def test_parsing_applies_the_rule() -> None:
    assert Left.size.parse("5") == 5
    with pytest.raises(ValueError, match="is less than 1"):
        Left.size.parse("0")


def test_a_password_is_not_repeated_in_a_message() -> None:
    assert Left.size.message("abc", ValueError("is wrong")) == "the.size=abc is wrong"
    assert "abc" not in Right.secret.message("abc", ValueError("is wrong"))


def test_an_ignored_option_says_so_in_its_documentation() -> None:
    ignored = optional("a.b", INT, "Threads.", ignored=True)
    assert ignored.documentation.startswith("Threads. Accepted")


def test_a_coarser_unit_is_converted_but_no_limit_stays_no_limit() -> None:
    hours = Fallback("log.retention.hours", 3_600_000)
    assert hours.convert(2) == 7_200_000
    assert hours.convert(-1) == -1
    assert Fallback("log.dir").convert(("/a",)) == ("/a",)
