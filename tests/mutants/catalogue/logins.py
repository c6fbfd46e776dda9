"""Logins: what may be asked before one, how long it lasts, delegation tokens."""

from __future__ import annotations

from mutants.mutant import Edit, Mutant

_STATES = "moldau.security.rules.sasl_states"
_SCRAM = "moldau.security.rules.scram"
_TOKENS = "moldau.security.rules.delegation_tokens"
_STORE = "moldau.cluster.delegation_tokens"
_STATE_TESTS = "unit/security/rules/test_sasl_states.py"
_SCRAM_TESTS = "unit/security/rules/test_scram.py"
_TOKEN_TESTS = "unit/security/rules/test_delegation_tokens.py"
_SESSION_TESTS = "unit/broker/test_sasl_session.py"
_STORE_TESTS = "unit/cluster/test_token_store.py"

MUTANTS = (
    Mutant(
        name="strangers-pass",
        rule="SASL",
        breaks="every request is answered before a login",
        edits=(
            Edit(
                _STATES,
                "    return FrameVerdict.REFUSE if api_key in _SASL_APIS else FrameVerdict.CLOSE\n",
                "    return FrameVerdict.REFUSE if api_key in _SASL_APIS else FrameVerdict.PASS\n",
            ),
        ),
        tests=(
            f"{_STATE_TESTS}::test_nothing_but_logins_and_versions_passes_before_the_login",
            f"{_STATE_TESTS}::test_table",
        ),
    ),
    Mutant(
        name="an-expired-session-goes-on",
        rule="SASL",
        breaks="who does not renew his login is served for ever",
        edits=(
            Edit(
                _STATES,
                "        return FrameVerdict.CLOSE if is_expired else FrameVerdict.PASS\n",
                "        return FrameVerdict.PASS\n",
            ),
        ),
        tests=(
            f"{_STATE_TESTS}"
            "::test_a_limited_session_is_renewed_with_a_handshake_and_ends_with_anything_else",
        ),
    ),
    Mutant(
        name="a-token-that-ends-does-not-end-its-session",
        rule="SASL",
        breaks="a session outlives the token by which it began",
        edits=(Edit(_STATES, "    if credential_expires_ms is not None:\n", "    if False:\n"),),
        tests=(f"{_STATE_TESTS}::test_life_of_a_session",),
    ),
    Mutant(
        name="a-session-outlives-its-delegation-token",
        rule="SASL",
        breaks="a client that logged in with a delegation token is not told when that ends",
        edits=(
            Edit(
                "moldau.security.sasl_server",
                "Authenticated(token.owner, token.expiry_ms, is_by_token=True)",
                "Authenticated(token.owner, None, is_by_token=True)",
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
        name="any-proof-is-right",
        rule="SCRAM",
        breaks="a password is not compared",
        edits=(
            Edit(
                _SCRAM,
                '            raise ScramError("the proof is wrong")\n',
                "            pass\n",
            ),
        ),
        tests=(_SCRAM_TESTS,),
    ),
    Mutant(
        name="others-act-for-users",
        rule="SCRAM",
        breaks="a client may say that it acts for somebody else",
        edits=(
            Edit(
                _SCRAM,
                '            raise ScramError("nobody may act for another user")\n',
                "            pass\n",
            ),
        ),
        tests=(f"{_SCRAM_TESTS}::test_first_messages_that_are_refused",),
    ),
    Mutant(
        name="another-nonce-is-as-good",
        rule="SCRAM",
        breaks="what was said in one exchange can be said again in another",
        edits=(Edit(_SCRAM, '        if match["nonce"] != self._nonce or ', "        if "),),
        tests=(_SCRAM_TESTS,),
    ),
    Mutant(
        name="anybody-renews-tokens",
        rule="delegation tokens",
        breaks="who finds a token's secret keeps it alive",
        edits=(Edit(_TOKENS, "    if not token.is_in_hands_of(principal):\n", "    if False:\n"),),
        tests=(f"{_TOKEN_TESTS}::test_its_owner_who_asked_for_it_and_its_renewers_hold_it",),
    ),
    Mutant(
        name="tokens-live-again",
        rule="delegation tokens",
        breaks="a token that has expired is renewed",
        edits=(Edit(_TOKENS, "    if token.is_expired(now_ms):\n", "    if False:\n"),),
        tests=(
            f"{_TOKEN_TESTS}::test_what_has_expired_cannot_be_renewed",
            f"{_TOKEN_TESTS}::test_times_stay_in_order_whatever_is_done",
        ),
    ),
    Mutant(
        name="tokens-live-for-ever",
        rule="delegation tokens",
        breaks="a token that is renewed outlives its longest life",
        edits=(
            Edit(
                _TOKENS,
                "    period_ms = lifetimes.renew_ms if period_ms < 0 else period_ms\n"
                "    return replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))\n",
                "    period_ms = lifetimes.renew_ms if period_ms < 0 else period_ms\n"
                "    return replace(token, expiry_ms=now_ms + period_ms)\n",
            ),
        ),
        tests=(
            f"{_TOKEN_TESTS}::test_no_renewal_goes_beyond_the_longest_life",
            f"{_TOKEN_TESTS}::test_times_stay_in_order_whatever_is_done",
        ),
    ),
    Mutant(
        name="tokens-beget-tokens",
        rule="delegation tokens",
        breaks="who has a token makes others, and stays for ever",
        edits=(
            Edit(
                _TOKENS,
                "    return is_known and not is_logged_in_by_token\n",
                "    return is_known\n",
            ),
        ),
        tests=(f"{_TOKEN_TESTS}::test_only_those_who_are_known_may_ask",),
    ),
    Mutant(
        name="expired-tokens-let-in",
        rule="delegation tokens",
        breaks="a login with a token that has expired, and is not removed yet, succeeds",
        edits=(
            Edit(
                _STORE,
                "        if token is None or token.token_id != token_id or "
                "token.is_expired(self._clock.now_ms()):\n",
                "        if token is None or token.token_id != token_id:\n",
            ),
        ),
        tests=(f"{_STORE_TESTS}::test_a_login_finds_a_token_while_it_is_good",),
    ),
    Mutant(
        name="every-broker-removes-tokens",
        rule="delegation tokens",
        breaks="brokers that are not the controller remove tokens",
        edits=(Edit(_STORE, "            if is_controller():\n", "            if True:\n"),),
        tests=(
            f"{_STORE_TESTS}::test_the_controller_removes_what_has_expired_and_nobody_else_does",
        ),
    ),
    Mutant(
        name="a-token-under-the-name-of-another",
        rule="tokens",
        breaks="a token in the store proves a login under another id",
        edits=(
            Edit(
                _STORE,
                "token is None or token.token_id != token_id or",
                "token is None or",
            ),
        ),
        tests=(f"{_STORE_TESTS}::test_a_token_under_the_name_of_another_lets_nobody_in",),
    ),
    Mutant(
        name="strangers-send-requests-of-any-size",
        rule="SASL",
        breaks="sasl.server.max.receive.size does not hold before a login",
        edits=(
            Edit(
                "moldau.broker.sasl_session",
                "        connection.limit_requests(options().sasl_server_max_receive_size)\n",
                "",
            ),
        ),
        tests=(f"{_SESSION_TESTS}::test_requests_are_limited_to_the_size_of_a_login_before_it",),
    ),
)
