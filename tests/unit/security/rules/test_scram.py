"""SCRAM: the RFC's own example, both sides against each other, and everything that is refused."""

from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.rules import scram
from moldau.security.rules.scram import (
    LEAST_ITERATIONS,
    MOST_ITERATIONS_TO_DO,
    SALT_BYTES,
    USUAL_ITERATIONS,
    ScramClient,
    ScramCredential,
    ScramError,
    ScramServer,
    make_credential,
    pretend_credential,
    salt_password,
)

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
SALT = b"0123456789abcdef"


def credential_of(mechanism, password, iterations=4096):
    salted = salt_password(mechanism, password, SALT, iterations)
    return make_credential(mechanism, salted, SALT, iterations)


def log_in(mechanism, user, password, credential):
    """The whole exchange; the name that the server read."""
    client = ScramClient(mechanism, user, password, "client-nonce")
    server = ScramServer(mechanism, "server-nonce")
    name = server.read_first(client.first())
    client.check(server.finish(client.final(server.answer_first(credential))))
    return name


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_sides_believe_each_other_when_the_password_is_right(mechanism):
    assert log_in(mechanism, "alice", "sécret", credential_of(mechanism, "sécret")) == "alice"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(mechanism):
    with pytest.raises(ScramError, match="the proof is wrong"):
        log_in(mechanism, "alice", "guess", credential_of(mechanism, "secret"))


def test_a_user_who_does_not_exist_fails_as_late_as_one_who_does():
    pretended = pretend_credential("SCRAM-SHA-256", b"key", "nobody")
    assert pretended == pretend_credential("SCRAM-SHA-256", b"key", "nobody")
    with pytest.raises(ScramError, match="the proof is wrong"):
        log_in("SCRAM-SHA-256", "nobody", "x", pretended)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_who_does_not_exist_has_a_salt_as_long_as_those_who_do(mechanism):
    pretended = pretend_credential(mechanism, b"key", "nobody")
    assert (len(pretended.salt), pretended.iterations) == (SALT_BYTES, USUAL_ITERATIONS)


def test_example_of_rfc_7677():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    final = client.final(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_a_broker_that_does_not_know_the_password_is_not_believed():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "abc")
    client.final(b"r=abcdef,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(ScramError, match="does not know the password"):
        client.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("iterations", [1, 4095, 900_000_000])
def test_a_broker_can_ask_neither_for_too_little_nor_for_days_of_work(iterations):
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "abc")
    with pytest.raises(ScramError, match="iterations"):
        client.final(f"r=abcdef,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={iterations}".encode())


def test_a_broker_must_go_on_with_the_nonce_of_the_client():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "abc")
    with pytest.raises(ScramError, match="malformed"):
        client.final(b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")


@given(st.text(min_size=1).filter(lambda name: "\0" not in name))
def test_any_name_comes_through(name):
    try:
        first = ScramClient("SCRAM-SHA-256", name, "x", "abc").first()
    except UnicodeEncodeError:
        return
    assert ScramServer("SCRAM-SHA-256", "def").read_first(first) == name


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"y,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"\xff\xfe",
    ],
)
def test_first_messages_that_are_refused(message):
    with pytest.raises(ScramError):
        ScramServer("SCRAM-SHA-256", "def").read_first(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws,r=abcdef",
        b"c=biws,r=other,p=AAAA",
        b"c=biws,r=abcdef,p=!!",
        b"c=biws,r=abcdef,p=AAAA",
        b"c=eSws,r=abcdef,p=AAAA",
    ],
)
def test_final_messages_that_are_refused(message):
    server = ScramServer("SCRAM-SHA-256", "def")
    server.read_first(b"n,,n=user,r=abc")
    server.answer_first(credential_of("SCRAM-SHA-256", "x"))
    with pytest.raises(ScramError):
        server.finish(message)


def test_a_final_message_without_a_first_is_refused():
    with pytest.raises(ScramError):
        ScramServer("SCRAM-SHA-256", "def").finish(b"c=biws,r=abcdef,p=AAAA")


def test_the_text_of_a_credential_is_kafkas():
    credential = credential_of("SCRAM-SHA-512", "x", 8192)
    text = str(credential)
    assert text.startswith("salt=")
    assert text.endswith(",iterations=8192")
    assert ScramCredential.parse(text) == credential


@pytest.mark.parametrize("text", ["", "salt=AAAA", "salt=!,stored_key=,server_key=,iterations=1"])
def test_a_text_that_is_no_credential_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        ScramCredential.parse(text)


def test_nothing_secret_is_in_the_representation():
    assert "stored" not in repr(credential_of("SCRAM-SHA-256", "x"))


@pytest.mark.parametrize(
    ("more", "is_token"),
    [
        (b"", False),
        (b",tokenauth=true", True),
        (b",a=b,tokenauth=true", True),
        (b",tokenauth=false", False),
        (b",xtokenauth=true", False),
    ],
)
def test_a_client_may_say_that_its_name_is_a_tokens(more, is_token):
    server = ScramServer("SCRAM-SHA-512", "nonce")
    assert server.read_first(b"n,,n=id,r=abc" + more) == "id"
    assert server.is_token is is_token


def test_what_our_client_says_with_a_token_is_understood():
    client = ScramClient("SCRAM-SHA-512", "id", "word", "abc", is_token=True)
    server = ScramServer("SCRAM-SHA-512", "nonce")
    assert server.read_first(client.first()) == "id"
    assert server.is_token


@pytest.mark.parametrize(("nonce", "is_right"), [("abcown", True), ("abcother", False)])
def test_a_proof_counts_in_its_own_exchange_only(nonce, is_right):
    """Everything is right but the nonce, for which the proof was made as well."""
    salted = salt_password("SCRAM-SHA-256", "word", b"salt", 4096)
    credential = make_credential("SCRAM-SHA-256", salted, b"salt", 4096)
    server = ScramServer("SCRAM-SHA-256", "own")
    server.read_first(b"n,,n=user,r=abc")
    answer = server.answer_first(credential).decode()
    unproven = f"c=biws,r={nonce}"
    said = f"n=user,r=abc,{answer},{unproven}".encode()
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(credential.stored_key, said, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    final = f"{unproven},p={base64.b64encode(proof).decode()}".encode()
    if is_right:
        assert server.finish(final).startswith(b"v=")
    else:
        with pytest.raises(ScramError):
            server.finish(final)


def test_a_broker_may_ask_for_the_most_and_for_no_more(monkeypatch):
    asked = []
    monkeypatch.setattr(scram, "salt_password", lambda *args: asked.append(args[3]) or b"salted")
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "abc")
    for iterations in (MOST_ITERATIONS_TO_DO, LEAST_ITERATIONS):
        client.final(f"r=abcdef,s=AAAA,i={iterations}".encode())
    with pytest.raises(ScramError, match="asks for 1000001 iterations"):
        client.final(f"r=abcdef,s=AAAA,i={MOST_ITERATIONS_TO_DO + 1}".encode())
    assert asked == [MOST_ITERATIONS_TO_DO, LEAST_ITERATIONS]


def test_the_name_of_a_user_may_have_signs_of_the_exchange():
    client = ScramClient("SCRAM-SHA-256", "a=b,c", "x", "abc")
    assert client.first() == b"n,,n=a=3Db=2Cc,r=abc"
    server = ScramServer("SCRAM-SHA-256", "def")
    assert server.read_first(b"n,a=a=3Db,n=a=3Db,r=abc") == "a=b"
    with pytest.raises(ScramError, match="act for another"):
        server.read_first(b"n,a=a,n=a=3Db,r=abc")


def test_the_last_word_of_a_broker_has_a_form():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    client.final(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    right = b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    for refused in (b"e=" + right, b"v=!!", b"v=", b"\xff"):
        with pytest.raises(ScramError):
            client.check(refused)


def test_a_credential_says_what_it_lacks():
    with pytest.raises(ValueError, match="has no stored_key"):
        ScramCredential.parse("salt=AAAA")


@pytest.mark.parametrize("name", ["salt", "stored_key", "server_key"])
def test_a_credential_is_base64_and_nothing_else(name):
    text = f"{credential_of('SCRAM-SHA-256', 'x')}"
    with pytest.raises(ValueError, match=r"."):
        ScramCredential.parse(text.replace(f"{name}=", f"{name}=!"))


def test_the_proof_of_a_broker_is_base64():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "abc")
    with pytest.raises(ScramError, match="not base64"):
        client.check(b"v=!AAAA")


def test_a_name_is_no_tokens_before_a_client_says_so():
    assert not ScramServer("SCRAM-SHA-512", "nonce").is_token
