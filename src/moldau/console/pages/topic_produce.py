"""Sends a test record to a topic."""

from __future__ import annotations

from nicegui import ui

from moldau.console.data.sending import OutgoingText, send_record
from moldau.console.pages.frame import Frame, page_frame
from moldau.console.pages.topic_tabs import topic_head
from moldau.console.rules.new_topic import parse_headers
from moldau.errors import ConfigurationError


def register() -> None:
    @ui.page("/topics/{name}/produce", response_timeout=15)
    async def show_produce(name: str) -> None:
        async with page_frame(name, "/topics") as frame:
            topic_head(frame, name, "produce")
            with ui.element("section").classes("m-card m-form"):
                _form(frame, name)


def _form(frame: Frame, topic: str) -> None:
    key = ui.input("Key", placeholder="none").props("outlined dense stack-label").classes("m-full")
    value = (
        ui.textarea("Value").props("outlined dense autogrow stack-label").classes("m-full m-code")
    )
    is_null = ui.checkbox("null instead of a value: deletes the key where the log is compacted")
    headers = ui.textarea("Headers", placeholder="name: value\none on a line")
    headers.props("outlined dense autogrow stack-label").classes("m-full")
    partition = ui.number("Partition", min=0, precision=0, placeholder="by the key")
    partition.props("outlined dense stack-label")

    async def send() -> None:
        try:
            record = OutgoingText(
                topic=topic,
                key=key.value or None,
                value=None if is_null.value else value.value or "",
                headers=parse_headers(headers.value or ""),
                partition=None if partition.value is None else int(partition.value),
            )
        except ConfigurationError as error:
            ui.notify(str(error), type="negative")
            return

        async def work() -> None:
            sent = await send_record(frame.console.cluster, record)
            outcome.set_text(f"Written to partition {sent.partition} at offset {sent.offset:,}")

        await frame.attempt(work(), "The record was written")

    with ui.element("div").classes("m-buttons"):
        outcome = ui.label().classes("m-faint")
        ui.button("Send", icon="send", on_click=send).props("unelevated")
