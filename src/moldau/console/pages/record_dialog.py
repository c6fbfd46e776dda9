"""One record with all that is kept of it."""

from __future__ import annotations

import json

from nicegui import ui

from moldau.console.pages.dialogs import opened_dialog
from moldau.console.rules.browse_links import Browsing
from moldau.console.rules.record_view import Format, Kept, KeptRecord, Shown, show
from moldau.console.rules.wording import time_text


def open_record(topic: str, record: KeptRecord) -> None:
    title = f"{topic} · partition {record.partition} · offset {record.offset:,}"
    with opened_dialog(title, is_wide=True) as dialog:
        ui.label(
            f"{time_text(record.timestamp_ms)} UTC · {record.timestamp_ms} ms since 1970"
        ).classes("m-faint")
        _field("Key", record.key)
        _field("Value", record.value)
        if record.headers:
            ui.label(f"Headers ({len(record.headers)})").classes("m-label")
            with ui.element("div").classes("m-headers"):
                for name, value in record.headers:
                    ui.label(name).classes("m-mono m-break")
                    ui.label(show(value).text).classes("m-mono m-break")
        else:
            ui.label("No headers").classes("m-faint")
        link = Browsing(partition=record.partition, offset=record.offset, opens=True).path(topic)
        with ui.element("div").classes("m-buttons"):
            ui.button("Copy link", icon="link", on_click=lambda: _copy_link(link)).props("flat")
            ui.button("Close", on_click=dialog.close).props("flat")


def _copy_link(path: str) -> None:
    """The host is what this browser calls it. Without https there is no clipboard for scripts."""
    ui.run_javascript(f"""
        const link = location.origin + {json.dumps(path)};
        if (navigator.clipboard) navigator.clipboard.writeText(link);
        else window.prompt("The link to this record", link);
    """)


def _field(label: str, kept: Kept) -> None:
    shown = show(kept)
    head = ui.element("div").classes("m-field-head")
    text = ui.label(shown.text).classes("m-pre").props("tabindex=0")
    with head:
        ui.label(label).classes("m-label")
        remark = ui.label(shown.remark).classes("m-faint")
        ui.space()
        if kept.data is None:
            return

        def put(found: Shown) -> None:
            text.set_text(found.text)
            remark.set_text(f"{found.remark}, as {found.format.value}")

        has_schema = kept.decoding is not None
        ui.toggle(
            [one.value for one in Format if has_schema or one is not Format.SCHEMA],
            value=Format.AUTO.value,
            on_change=lambda event: put(show(kept, Format(event.value))),
        ).props("dense flat no-caps size=sm")
        ui.button(icon="content_copy", on_click=lambda: ui.clipboard.write(text.text)).props(
            f'flat round dense size=sm aria-label="Copy {label.lower()}"'
        )
