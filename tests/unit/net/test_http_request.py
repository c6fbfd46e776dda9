"""What a request over HTTP is, and that nothing else is taken for one."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.net.http_server import BadHttpError, HttpAnswer, encode_answer, parse_request


def test_a_request_is_read_with_its_query_and_headers() -> None:
    found = parse_request(b"GET /history?kind=isr&subject=a%2Db HTTP/1.1\r\nAccept: x\r\n\r\n")
    assert (found.method, found.path) == ("GET", "/history")
    assert found.query == {"kind": "isr", "subject": "a-b"}
    assert found.headers == {"accept": "x"}


@pytest.mark.parametrize(
    ("head", "keeps_alive"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_who_keeps_the_connection(head: bytes, keeps_alive: bool) -> None:
    assert parse_request(head).keeps_alive is keeps_alive


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_refused(head: bytes) -> None:
    with contextlib.suppress(BadHttpError):
        parse_request(head + b"\r\n\r\n")


def test_an_answer_to_head_has_no_body_and_the_length_of_one() -> None:
    answer = HttpAnswer(b"12345", "text/plain")
    head = encode_answer(answer, with_body=False, keeps_alive=True)
    assert b"Content-Length: 5\r\n" in head
    assert head.endswith(b"\r\n\r\n")
    assert encode_answer(answer, with_body=True, keeps_alive=True) == head + b"12345"
