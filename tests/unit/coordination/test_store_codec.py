"""The messages of a served store as bytes and back; what is no message is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordination import port
from moldau.coordination.port import Check, Create, Delete, Node, SetData
from moldau.coordination.served.messages import (
    LENGTH,
    AddWatch,
    CloseSession,
    ConnectRequest,
    ConnectResponse,
    Ping,
    ReadChildren,
    ReadNodes,
    RemoveWatch,
    SessionExpired,
    StoreResponse,
    ToClient,
    ToService,
    WatchEvent,
    WatchPlace,
    Write,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from moldau.coordination.tree import DeleteTree, EndSession, EnsureParents, TreeOutcome, WatchKind

numbers = st.integers(-1, 1 << 62)
paths = st.text(st.characters(codec="utf-8"), max_size=20).map(lambda text: f"/{text}")
places = st.builds(WatchPlace, st.sampled_from(WatchKind), paths)
operations = st.one_of(
    st.builds(
        Create, path=paths, data=st.binary(), ephemeral=st.booleans(), sequential=st.booleans()
    ),
    st.builds(SetData, path=paths, data=st.binary(), version=numbers),
    st.builds(Delete, path=paths, version=numbers),
    st.builds(Check, path=paths, version=numbers),
    st.builds(EnsureParents, path=paths),
    st.builds(DeleteTree, path=paths),
)
requests = st.one_of(
    st.builds(
        ConnectRequest,
        session_id=numbers,
        timeout_seconds=st.floats(0, 1e6),
        watches=st.lists(places).map(tuple),
        seen=numbers,
        process_id=numbers,
    ),
    st.builds(Ping, number=numbers),
    st.builds(ReadNodes, number=numbers, paths=st.lists(paths).map(tuple)),
    st.builds(ReadChildren, number=numbers, path=paths),
    st.builds(Write, number=numbers, operations=st.lists(operations).map(tuple)),
    st.builds(CloseSession, number=numbers),
    st.builds(AddWatch, place=places),
    st.builds(RemoveWatch, place=places),
)
nodes = st.builds(
    Node,
    data=st.binary(),
    version=numbers,
    created_id=numbers,
    modified_ms=numbers,
    ephemeral_owner=numbers,
)
results = st.one_of(
    st.none(),
    st.lists(st.none() | nodes),
    st.lists(paths),
    st.lists(st.builds(TreeOutcome, paths, numbers)),
)
answers = st.one_of(
    st.builds(ConnectResponse, session_id=numbers),
    st.builds(SessionExpired),
    st.builds(StoreResponse, number=numbers, result=results, seen=numbers),
    st.builds(WatchEvent, place=places, seen=numbers),
)


def body(frame: bytes) -> bytes:
    (length,) = LENGTH.unpack_from(frame)
    assert len(frame) == LENGTH.size + length
    return frame[LENGTH.size :]


@given(requests)
def test_what_a_client_says_is_understood(message: ToService) -> None:
    assert decode_request(body(encode_request(message))) == message


@given(answers)
def test_what_the_service_says_is_understood(message: ToClient) -> None:
    assert decode_response(body(encode_response(message))) == message


@pytest.mark.parametrize(
    "error",
    [
        port.NoNodeError("a"),
        port.NodeExistsError("b"),
        port.BadVersionError("c"),
        port.NotEmptyError("d"),
        port.EphemeralParentError("e"),
        port.SessionExpiredError("f"),
        port.StoreLostError("g"),
        ValueError("h"),
    ],
)
def test_an_error_comes_as_what_it_is(error: port.CoordinationError | ValueError) -> None:
    answer = decode_response(body(encode_response(StoreResponse(number=1, result=error, seen=2))))
    assert isinstance(answer, StoreResponse)
    assert type(answer.result) is type(error)
    assert str(answer.result) == str(error)


frames = st.binary() | requests.map(lambda message: body(encode_request(message)))


@given(frames)
def test_what_is_no_message_is_refused_with_one_kind_of_error(data: bytes) -> None:
    for decode in (decode_request, decode_response):
        with contextlib.suppress(ValueError):
            decode(data)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"7", b'["hello"]', b'["write",1,[["set","/a"]]]', b'["none"]']
)
def test_examples_of_what_is_no_message(data: bytes) -> None:
    with pytest.raises(ValueError, match="no message of a store"):
        decode_request(data)


def test_nobody_ends_the_session_of_another() -> None:
    with pytest.raises(ValueError, match="its own message"):
        encode_request(Write(number=1, operations=(EndSession(session_id=1),)))
