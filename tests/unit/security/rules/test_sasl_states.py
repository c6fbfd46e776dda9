"""Which request may come when, on a listener that asks who a client is."""

from __future__ import annotations

import pytest

from moldau.security.rules.sasl import FrameVerdict, SaslState, judge, session_lifetime_ms

HANDSHAKE, API_VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3


@pytest.mark.parametrize(
    ("state", "api_key", "verdict"),
    [
        (SaslState.NEW, API_VERSIONS, FrameVerdict.PASS),
        (SaslState.NEW, HANDSHAKE, FrameVerdict.HANDSHAKE),
        (SaslState.NEW, AUTHENTICATE, FrameVerdict.REFUSE),
        (SaslState.NEW, METADATA, FrameVerdict.CLOSE),
        (SaslState.EXCHANGING, AUTHENTICATE, FrameVerdict.AUTHENTICATE),
        (SaslState.EXCHANGING, HANDSHAKE, FrameVerdict.REFUSE),
        (SaslState.EXCHANGING, API_VERSIONS, FrameVerdict.CLOSE),
        (SaslState.EXCHANGING, METADATA, FrameVerdict.CLOSE),
        (SaslState.RAW, METADATA, FrameVerdict.RAW_MESSAGE),
        (SaslState.AUTHENTICATED, METADATA, FrameVerdict.PASS),
        (SaslState.AUTHENTICATED, HANDSHAKE, FrameVerdict.PASS),
        (SaslState.OVER, API_VERSIONS, FrameVerdict.CLOSE),
        (SaslState.OVER, HANDSHAKE, FrameVerdict.CLOSE),
    ],
)
def test_table(state, api_key, verdict):
    assert judge(state, api_key) is verdict


@pytest.mark.parametrize("api_key", range(-1, 95))
@pytest.mark.parametrize("state", [SaslState.NEW, SaslState.EXCHANGING, SaslState.OVER])
def test_nothing_but_logins_and_versions_passes_before_the_login(state, api_key):
    allowed = {API_VERSIONS} if state is SaslState.NEW else set()
    assert (judge(state, api_key) is FrameVerdict.PASS) == (api_key in allowed)


def test_a_limited_session_is_renewed_with_a_handshake_and_ends_with_anything_else():
    limited = {"is_limited": True}
    assert judge(SaslState.AUTHENTICATED, HANDSHAKE, **limited) is FrameVerdict.HANDSHAKE
    assert judge(SaslState.AUTHENTICATED, METADATA, **limited) is FrameVerdict.PASS
    expired = {"is_limited": True, "is_expired": True}
    assert judge(SaslState.AUTHENTICATED, METADATA, **expired) is FrameVerdict.CLOSE
    assert judge(SaslState.AUTHENTICATED, HANDSHAKE, **expired) is FrameVerdict.HANDSHAKE


def test_life_of_a_session():
    assert session_lifetime_ms(1_000, 0, None) == 0
    assert session_lifetime_ms(1_000, 500, None) == 500
    assert session_lifetime_ms(1_000, 1, None) == 1
    assert session_lifetime_ms(1_000, 0, 1_200) == 200
    assert session_lifetime_ms(1_000, 500, 1_200) == 200
    assert session_lifetime_ms(1_000, 500, 9_000) == 500
    assert session_lifetime_ms(1_000, 500, 900) == 1  # 0 would mean for ever
