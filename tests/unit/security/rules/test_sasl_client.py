"""What a client says in each mechanism, message by message."""

from __future__ import annotations

import pytest

from moldau.security.rules.sasl import BearerLogin, PlainLogin, ScramLogin
from moldau.security.rules.scram import ScramError, ScramServer, make_credential, salt_password


def test_plain_says_all_at_once() -> None:
    login = PlainLogin("alice", "secret")
    assert (login.mechanism, login.first()) == ("PLAIN", b"\0alice\0secret")
    assert login.respond(b"") is None


def test_bearer_answers_a_refusal_with_one_byte() -> None:
    login = BearerLogin("abc")
    assert login.mechanism == "OAUTHBEARER"
    assert login.first().startswith(b"n,,\x01auth=Bearer abc")
    assert login.respond(b"") is None
    assert login.respond(b"{}") == b"\x01"


def log_in(login: ScramLogin, server: ScramServer) -> bytes:
    """The server's last word."""
    salted = salt_password("SCRAM-SHA-256", "secret", b"salt", 4096)
    credential = make_credential("SCRAM-SHA-256", salted, b"salt", 4096)
    server.read_first(login.first())
    final = login.respond(server.answer_first(credential))
    assert final is not None
    return server.finish(final)


@pytest.mark.parametrize("is_token", [False, True])
def test_scram_proves_itself_and_then_wants_a_proof(is_token: bool) -> None:
    login = ScramLogin("SCRAM-SHA-256", "alice", "secret", "abc", is_token=is_token)
    server = ScramServer("SCRAM-SHA-256", "def")
    proof = log_in(login, server)
    assert login.mechanism == "SCRAM-SHA-256"
    assert server.is_token is is_token
    assert login.respond(proof) is None


def test_scram_is_no_token_unless_it_says_so() -> None:
    server = ScramServer("SCRAM-SHA-256", "def")
    log_in(ScramLogin("SCRAM-SHA-256", "alice", "secret", "abc"), server)
    assert not server.is_token


def test_scram_does_not_believe_a_broker_without_the_password() -> None:
    login = ScramLogin("SCRAM-SHA-256", "alice", "secret", "abc")
    log_in(login, ScramServer("SCRAM-SHA-256", "def"))
    with pytest.raises(ScramError, match="does not know the password"):
        login.respond(b"v=AAAA")
