"""Passwords as Kafka 3.9 encrypts them in the store."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.config.declarations.security import MOST_ITERATIONS
from moldau.security.password_encoder import PasswordEncoder, is_encoded

SECRET = "a secret of brokers"
OF_JAVA = (
    "initializationVector:A+0D0qb95r5TT2iUD1sz5A==,keyLength:128,salt:EOcnAfgNbSpwhDfzP2C"
    "Q43vXFNqZfVoOTv+AJT7vhXImYzixsZS6Xn/wi1687ARH2is0K1wyUCZ4L56KNVo6UBau/elE7hzPImhuppj"
    "7+w3j6gpJFwOH6U53AN04OBaNo+D3wTHqKCLccs65R97HbIgDGREN+pegRT4LRyzXp5k/sgrRCiehtR8tqHx"
    "y68ASZgsvz/KYusMHBlB5LtoMAtL4Sa1vlJtZDk9YqFOlLE6r1IE8Ws+ZFpU2T3KrJrS6YcxCqdWV2/xRyuu"
    "9zXz52Zi7Uh72gEPSLSsQvG7DScOWdhYOAnKJdwDQXobb9YVNtAde1mpqc6bgbFeGAEFMMA==,keyFactory"
    "Algorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4096,"
    "passwordLength:11,encryptedPassword:I/2KAHxpegVwUcltOCl6DQ=="
)
"""What org.apache.kafka.security.EncryptingPasswordEncoder made of `PASSWORD` with `SECRET`."""
PASSWORD = "hunter2 \u017e\U0001f600"


def encoder(secret: str = SECRET, **options: object) -> PasswordEncoder:
    return PasswordEncoder(secret, iterations=1024, **options)  # type: ignore[arg-type]


def test_what_kafka_has_encrypted_is_read() -> None:
    assert is_encoded(OF_JAVA)
    assert encoder().decode(OF_JAVA) == (PASSWORD, False)


@settings(max_examples=30, deadline=None)
@given(st.text(), st.sampled_from([128, 192, 256]))
def test_every_password_comes_back_and_none_twice_in_the_same_way(text: str, bits: int) -> None:
    one = encoder(key_bits=bits)
    encoded = one.encode(text)
    assert is_encoded(encoded)
    assert encoder().decode(encoded) == (text, False)
    assert one.encode(text) != encoded


def test_a_former_secret_still_reads_and_the_new_one_writes() -> None:
    both = encoder("new", old_secret=SECRET)
    assert both.decode(OF_JAVA) == (PASSWORD, True)
    assert encoder("new").decode(both.encode("x")) == ("x", False)


@pytest.mark.parametrize(
    "text",
    [
        OF_JAVA.replace("keyLength:128", "keyLength:7"),
        OF_JAVA.replace("iterations:4096", "iterations:99999999999"),
        OF_JAVA.replace("passwordLength:11", "passwordLength:12"),
        OF_JAVA.replace("AES/CBC", "AES/ECB"),
        OF_JAVA.replace("SHA512", "MD5"),
        OF_JAVA.replace("salt:", "salt:?"),
        "",
    ],
)
def test_what_is_not_ours_is_refused(text: str) -> None:
    assert encoder().decode(text) is None
    assert encoder("guess").decode(OF_JAVA) is None


@pytest.mark.parametrize(
    "text", ["", "secret", "a:b,c:d", 'x.PlainLoginModule required user_a="salt:1,iterations:2";']
)
def test_other_texts_are_not_taken_for_encrypted_ones(text: str) -> None:
    assert not is_encoded(text)


def test_the_work_for_a_text_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[int] = []
    derive = hashlib.pbkdf2_hmac

    def count(name: str, secret: bytes, salt: bytes, iterations: int, length: int) -> bytes:
        rounds.append(iterations)
        return derive(name, secret, salt, 1, length)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", count)
    stranger = encoder("guess", old_secret="another guess")
    most = OF_JAVA.replace("iterations:4096", f"iterations:{MOST_ITERATIONS}")
    more = OF_JAVA.replace("iterations:4096", f"iterations:{MOST_ITERATIONS + 1}")
    for text in (most, more):
        assert stranger.decode(text) is None
    assert rounds == [MOST_ITERATIONS] * 2, "with each of the secrets"
