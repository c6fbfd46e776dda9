"""Metadata that is known and encoded is answered without a task; else it is awaited."""

from __future__ import annotations

import inspect
from typing import Any

from kio.index import load_request_schema

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.api import RequestContext
from moldau.broker.handlers import metadata
from moldau.wire.headers import RequestHeader
from moldau.wire.shape import fit

VERSION = 12


def ask(bench: HandlerBench, *names: str, creates: bool = False) -> Any:
    """What the handler returns; no name asks for all topics."""
    values = {
        "topics": [{"name": name, "topic_id": None} for name in names] or None,
        "allow_auto_topic_creation": creates,
        "include_topic_authorized_operations": False,
    }
    request = fit(load_request_schema(metadata.API.key, VERSION), values)
    header = RequestHeader(metadata.API.key, VERSION, 9, "test")
    return metadata.handle(request, RequestContext(header, bench.connection, bench.services))


async def answer_later(bench: HandlerBench, *names: str, creates: bool = False) -> Any:
    answer = ask(bench, *names, creates=creates)
    assert inspect.isawaitable(answer)
    return await bench.cluster.during(answer)


def test_what_was_told_before_is_told_at_once() -> None:
    async def story(bench: HandlerBench) -> None:
        first = await answer_later(bench, "clicks")
        assert ask(bench, "clicks") == first
        assert ask(bench, "clicks", creates=True) == first
        assert len(ask(bench, "clicks", "missing")["topics"].elements) == 2
        assert ask(bench) == first  # all topics are this one

    with_broker(story)


def test_what_has_changed_is_encoded_anew() -> None:
    async def story(bench: HandlerBench) -> None:
        await answer_later(bench)
        await bench.create("views")
        both = await answer_later(bench)
        assert len(both["topics"].elements) == 2
        assert ask(bench) == both

    with_broker(story)


def test_who_asks_for_a_topic_that_is_to_be_made_waits_for_it() -> None:
    async def story(bench: HandlerBench) -> None:
        assert isinstance(ask(bench, "views"), dict)
        made = await answer_later(bench, "views", creates=True)
        assert "views" in bench.services.image.topics
        assert ask(bench, "views") == made

    with_broker(story)
