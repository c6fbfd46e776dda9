"""Logins: what may be asked before one, how long it lasts, delegation tokens."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_STORE = "moldau.cluster.credentials"
_SESSION_TESTS = "unit/broker/test_sasl_session.py"
_STORE_TESTS = "unit/cluster/test_token_store.py"

MUTANTS = (
    Mutant(
        name="a-session-outlives-its-delegation-token",
        rule="SASL",
        breaks="a client that logged in with a delegation token is not told when that ends",
        edits=(
            Edit(
                "moldau.security.sasl_server", "_ScramExchange.respond", "token.expiry_ms", "None"
            ),
        ),
        tests=(
            f"{_SESSION_TESTS}"
            "::test_a_session_ends_with_its_delegation_token_which_is_renewed_no_more",
            f"{_SESSION_TESTS}"
            "::test_connections_max_reauth_ms_ends_a_session_before_its_delegation_token",
        ),
    ),
    Mutant(
        name="expired-tokens-let-in",
        rule="delegation tokens",
        breaks="a login with a token that has expired, and is not removed yet, succeeds",
        edits=(Edit(_STORE, "DelegationTokens.find", "token.is_expired(self._clock.now_ms())"),),
        tests=(f"{_STORE_TESTS}::test_a_login_finds_a_token_while_it_is_good",),
    ),
    Mutant(
        name="every-broker-removes-tokens",
        rule="delegation tokens",
        breaks="brokers that are not the controller remove tokens",
        edits=(Edit(_STORE, "DelegationTokens.run", "is_controller()", "True"),),
        tests=(
            f"{_STORE_TESTS}::test_the_controller_removes_what_has_expired_and_nobody_else_does",
        ),
    ),
    Mutant(
        name="a-token-under-the-name-of-another",
        rule="tokens",
        breaks="a token in the store proves a login under another id",
        edits=(Edit(_STORE, "DelegationTokens.find", "token.token_id != token_id"),),
        tests=(f"{_STORE_TESTS}::test_a_token_under_the_name_of_another_lets_nobody_in",),
    ),
    Mutant(
        name="strangers-send-requests-of-any-size",
        rule="SASL",
        breaks="sasl.server.max.receive.size does not hold before a login",
        edits=(
            Edit(
                "moldau.broker.authentication",
                "SaslSession.__init__",
                "connection.limit_requests(options().sasl_server_max_receive_size)",
            ),
        ),
        tests=(f"{_SESSION_TESTS}::test_requests_are_limited_to_the_size_of_a_login_before_it",),
    ),
)
